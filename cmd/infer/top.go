package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"terrace/internal/units"
)

func init() { register(newTop) }

type topCommand struct {
	*app

	addr, keyFile string
	once, asJSON  bool
}

func newTop(a *app) *cobra.Command {
	c := &topCommand{app: a}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch a server: texts, tiers and rates",
		Long: "Watch 'infer serve' at an address: the texts it reads, decodes, holds back and has swapped out, what lies on which tier, and tokens and bytes a second; " +
			"redrawn on a terminal until Ctrl-C, printed once elsewhere.",
		Example: "  infer top\n  infer top --addr 10.0.0.5:8080 --api-key-file key --once --json",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return c.run() },
	}
	p := cmd.Flags()
	p.StringVar(&c.addr, "addr", "127.0.0.1:8080", "address of the server, HOST:PORT or as it says it, http://HOST:PORT")
	p.StringVar(&c.keyFile, "api-key-file", "", "file whose first line is the server's key")
	p.BoolVar(&c.once, "once", false, "print one picture and end")
	p.BoolVar(&c.asJSON, "json", false, "print a JSON object a picture")
	return cmd
}

// served is a picture of a server, as /v1/terrace/tiers sends it.
type served struct {
	AtMS  int64 `json:"at_ms"`
	Tiers []struct {
		Name          string `json:"name"`
		UsedBytes     int64  `json:"used_bytes"`
		PeakBytes     int64  `json:"peak_bytes"`
		CapacityBytes int64  `json:"capacity_bytes"`
	} `json:"tiers"`
	Moved []struct {
		From  string `json:"from"`
		To    string `json:"to"`
		Bytes int64  `json:"bytes"`
	} `json:"moved"`
	HitRate   *float64 `json:"hit_rate"`
	Tokens    float64  `json:"tokens"`
	Running   int      `json:"running"`
	Waiting   int      `json:"waiting"`
	Sequences []struct {
		ID        int64  `json:"id"`
		State     string `json:"state"`
		Policy    string `json:"policy"`
		Prompt    int    `json:"prompt_tokens"`
		Read      int    `json:"read_tokens"`
		Generated int    `json:"generated_tokens"`
		KVBytes   int64  `json:"kv_bytes"`
		MS        int64  `json:"ms"`
	} `json:"sequences"`
}

func (c *topCommand) run() error {
	c.addr = strings.TrimSuffix(strings.TrimPrefix(c.addr, "http://"), "/") // as a server says where it is
	if _, _, err := net.SplitHostPort(c.addr); err != nil {
		return usageErrorf("--addr %s: %v", c.addr, err)
	}
	answer, err := c.watch()
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	live := c.isTTY(c.stdout) && !c.once && !c.asJSON
	var before *served
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	for seen := 0; lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		now := &served{}
		if err := json.Unmarshal([]byte(data), now); err != nil {
			return dataErrorf("%s sent no picture of a server: %w", c.addr, err)
		}
		seen++
		if !live && !c.asJSON && seen < 2 { // rates need two
			before = now
			continue
		}
		switch {
		case c.asJSON:
			_, err = fmt.Fprintln(c.stdout, data)
		case live:
			width, height := terminalSize(c.stdout)
			err = c.draw(now, before, pane{home: "\x1b[H", end: "\x1b[K\n", rest: "\x1b[J", width: width, height: height})
		default:
			err = c.draw(now, before, pane{end: "\n"})
		}
		if err != nil || !live && (c.once || !c.asJSON) {
			return err
		}
		before = now
	}
	if c.ctx.Err() != nil {
		return nil // Ctrl-C ends it
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", c.addr, err)
	}
	return fmt.Errorf("%s has ended the stream: it drains, or has stopped", c.addr)
}

// watch asks for the server's pictures.
func (c *topCommand) watch() (*http.Response, error) {
	r, err := http.NewRequestWithContext(c.ctx, http.MethodGet, "http://"+c.addr+"/v1/terrace/tiers", http.NoBody)
	if err != nil {
		return nil, usageErrorf("--addr %s: %v", c.addr, err)
	}
	if c.keyFile != "" {
		text, err := os.ReadFile(c.keyFile)
		if err != nil {
			return nil, usageErrorf("--api-key-file: %v", err)
		}
		key, _, _ := strings.Cut(strings.TrimPrefix(string(text), "\ufeff"), "\n")
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(key))
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%s does not answer: %w", c.addr, err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer, nil
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	hint := ""
	if answer.StatusCode == http.StatusUnauthorized {
		hint = " (--api-key-file FILE)"
	}
	return nil, fmt.Errorf("%s answers %s%s: %s", c.addr, answer.Status, hint, oneLine(fmt.Errorf("%s", text)))
}

// pane is where a picture goes: what begins it, ends its lines, and clears what is behind it; on a terminal of a size, 0 = any.
type pane struct {
	home, end, rest string
	width, height   int
}

// fit is a picture's lines as the screen shows them: one that went on below, or beyond the last, would move those drawn next.
func (s *pane) fit(picture string) string {
	lines := strings.Split(strings.TrimSuffix(picture, "\n"), "\n")
	if over := len(lines) - (s.height - 1); s.height > 1 && over > 0 {
		lines = append(lines[:s.height-2], fmt.Sprintf("… %d lines more", over+1))
	}
	for i := range lines {
		if s.width > 0 {
			lines[i] = shortened(lines[i], s.width)
		}
	}
	return s.home + strings.Join(lines, s.end) + s.end + s.rest
}

// draw prints a picture; rates are those since the one before.
func (c *topCommand) draw(now, before *served, on pane) error {
	var out strings.Builder
	seconds := 0.0
	if before != nil {
		seconds = float64(now.AtMS-before.AtMS) / 1000
	}
	rate := func(a, b float64) float64 {
		if seconds <= 0 {
			return 0
		}
		return (a - b) / seconds
	}
	tokens := 0.0
	if before != nil {
		tokens = rate(now.Tokens, before.Tokens)
	}
	fmt.Fprintf(&out, "%s  %d running, %d waiting, %.1f tokens/s", c.addr, now.Running, now.Waiting, tokens)
	if now.HitRate != nil {
		fmt.Fprintf(&out, ", %.1f %% of what steps read is in host memory", 100**now.HitRate)
	}
	fmt.Fprintln(&out)
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\nTIER\tUSED\tPEAK\tOF\t")
	for _, p := range now.Tiers {
		of := "-"
		if p.CapacityBytes > 0 {
			of = units.FormatBytes(p.CapacityBytes)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\n", p.Name, units.FormatBytes(p.UsedBytes), units.FormatBytes(p.PeakBytes), of)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i, m := range now.Moved {
		if before != nil && i < len(before.Moved) {
			fmt.Fprintf(&out, "%s to %s: %s, %s/s\n", m.From, m.To, units.FormatBytes(m.Bytes), units.FormatBytes(int64(rate(float64(m.Bytes), float64(before.Moved[i].Bytes)))))
		}
	}
	if len(now.Sequences) > 0 {
		fmt.Fprintln(t, "\nTEXT\tSTATE\tPROMPT\tREAD\tMADE\tKV\tAGE s\tPOLICY\t")
		for _, s := range now.Sequences {
			fmt.Fprintf(t, "%d\t%s\t%d\t%d\t%d\t%s\t%.1f\t%s\t\n", s.ID, s.State, s.Prompt, s.Read, s.Generated, units.FormatBytes(s.KVBytes), float64(s.MS)/1000, s.Policy)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	_, err := io.WriteString(c.stdout, on.fit(visible(out.String(), "\n")))
	return err
}
