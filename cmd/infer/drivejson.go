package main

import "terrace/engine"

// driveJSON is what one drive that attends has done over the run, counted by step, layer and KV head.
type driveJSON struct {
	Socket    string `json:"socket"`
	KVHeads   int    `json:"kv_heads"`
	LinkBytes struct {
		ToDrive int64 `json:"to_drive"` // the prompt's keys and values, then q, k and v of each step
		ToHost  int64 `json:"to_host"`  // outputs
	} `json:"link_bytes"`
	Pages struct {
		Read       uint64 `json:"read"`       // that left the flash
		Wanted     uint64 `json:"wanted"`     // that hold a chosen dimension or token
		Programmed uint64 `json:"programmed"` // of both copies
	} `json:"pages"`
	ModelledS struct {
		Link   float64 `json:"link"`
		NAND   float64 `json:"nand"`
		Engine float64 `json:"engine"`
	} `json:"modelled_s"` // by the profile that the drive mimics
	TokensScored   uint64 `json:"tokens_scored"`
	TokensAttended uint64 `json:"tokens_attended"`
}

// driveReport is the drives' part of a report; nil where none attends.
func driveReport(e *engine.Engine) (all []driveJSON) {
	for _, u := range e.TierUse().Drives {
		d := driveJSON{Socket: u.Socket, KVHeads: u.KVHeads, TokensScored: u.Work.TokensScored, TokensAttended: u.Work.TokensAttended}
		d.LinkBytes.ToDrive, d.LinkBytes.ToHost = u.ToDriveBytes, u.ToHostBytes
		d.Pages.Read, d.Pages.Wanted, d.Pages.Programmed = u.Work.PagesRead, u.Work.PagesWanted, u.Work.PagesProgrammed
		d.ModelledS.Link, d.ModelledS.NAND, d.ModelledS.Engine = float64(u.LinkNs)/1e9, float64(u.NANDNs)/1e9, float64(u.EngineNs)/1e9
		all = append(all, d)
	}
	return all
}
