package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"terrace/csdshim"
	"terrace/internal/units"
)

type csdStats struct {
	*app

	socket string
	asJSON bool
}

func newCSDStats(a *app) *cobra.Command {
	c := &csdStats{app: a}
	cmd := &cobra.Command{
		Use:     "stats --socket S",
		Short:   "Say what a running drive's flash holds and has done",
		Long:    "Asks a running drive for the pages that it read, programmed and moved, its erase blocks and their wear, over the life of its folder; and for its group buffer, where tokens wait until their group is full.",
		Example: "  infer csd stats --socket /run/user/1000/csd0.sock --json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run() },
	}
	cmd.Flags().StringVar(&c.socket, "socket", "", "Unix socket of the drive")
	cmd.Flags().BoolVar(&c.asJSON, "json", false, "print one JSON object")
	return cmd
}

// driveStats is the JSON of csd stats.
type driveStats struct {
	Pages struct {
		Read          uint64   `json:"read"`
		ReadByChannel []uint64 `json:"read_by_channel"`
		Valid         uint64   `json:"valid"`
		Programmed    struct {
			Token     uint64 `json:"token"`
			Embedding uint64 `json:"embedding"`
			GC        uint64 `json:"gc"`
		} `json:"programmed"`
	} `json:"pages"`
	Blocks struct {
		Total     uint64 `json:"total"`
		Free      uint64 `json:"free"`
		Erases    uint64 `json:"erases"`
		ErasesMin uint64 `json:"erases_min"`
		ErasesMax uint64 `json:"erases_max"`
	} `json:"blocks"`
	GroupBuffer struct {
		Bytes      uint64 `json:"bytes"`
		BytesPeak  uint64 `json:"bytes_peak"`
		LimitBytes uint64 `json:"limit_bytes"`
	} `json:"group_buffer"`
	Sequences uint64 `json:"sequences"`
	UsedBytes uint64 `json:"used_bytes"`
}

func newDriveStats(s csdshim.Stats) (out driveStats) {
	l := s.Life
	out.Pages.ReadByChannel = l.ReadByChannel
	for _, n := range l.ReadByChannel {
		out.Pages.Read += n
	}
	out.Pages.Valid = l.Valid
	p, b, g := &out.Pages.Programmed, &out.Blocks, &out.GroupBuffer
	p.Token, p.Embedding, p.GC = l.TokenProgrammed, l.EmbeddingProgrammed, l.Moved
	b.Total, b.Free, b.Erases, b.ErasesMin, b.ErasesMax = l.Blocks, l.FreeBlocks, l.Erases, l.ErasesMin, l.ErasesMax
	g.Bytes, g.BytesPeak, g.LimitBytes = l.GroupBufferBytes, l.GroupBufferPeak, l.GroupBufferMax
	out.Sequences, out.UsedBytes = s.Sequences, s.UsedBytes
	return out
}

func (c *csdStats) run() error {
	if c.socket == "" {
		return usageErrorf("csd stats: --socket is needed")
	}
	ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
	defer cancel()
	drive, err := csdshim.Dial(ctx, c.socket, csdshim.ClientOptions{})
	if err != nil {
		return err
	}
	defer drive.Close()
	stats, err := drive.Stats(ctx)
	if err != nil {
		return err
	}
	s := newDriveStats(stats)
	if c.asJSON {
		return json.NewEncoder(c.stdout).Encode(s)
	}
	p := s.Pages.Programmed
	_, err = fmt.Fprintf(c.stdout, "%d sequences, %s in %d pages\npages read %d; programmed %d of the token copy, %d of the embedding copy, %d moved\nblocks %d, %d free; %d erases, %d to %d a block\ngroup buffer %s, at most %s of %s\n",
		s.Sequences, units.FormatBytes(int64(s.UsedBytes)), s.Pages.Valid, s.Pages.Read, p.Token, p.Embedding, p.GC, s.Blocks.Total, s.Blocks.Free, s.Blocks.Erases, s.Blocks.ErasesMin, s.Blocks.ErasesMax,
		units.FormatBytes(int64(s.GroupBuffer.Bytes)), units.FormatBytes(int64(s.GroupBuffer.BytesPeak)), units.FormatBytes(int64(s.GroupBuffer.LimitBytes)))
	return err
}
