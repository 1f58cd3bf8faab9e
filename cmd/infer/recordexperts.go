package main

import (
	"github.com/spf13/cobra"

	"terrace/internal/replace"
	"terrace/weights/stream"
)

// addRecordExperts adds the flag of commands that can record which experts tokens use.
func (f *loadFlags) addRecordExperts(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.recordExperts, "record-experts", "", "write to this file which experts each token used (of generate's prompts none: their last layer reads the last token alone), for infer simulate expert-stream --set trace=recorded --set choices=FILE; with --weights or --memory what was predicted too")
}

// record begins to record which experts tokens use, where that is asked for; end writes the file.
func (f *loadFlags) record(a *app, l *loaded) (end func() error, err error) {
	if f.recordExperts == "" {
		return func() error { return nil }, nil
	}
	m := l.model
	switch {
	case m.Experts == 0:
		return nil, usageErrorf("--record-experts: %s has no experts: leave it out", l.name)
	case f.backend != "native":
		return nil, usageErrorf("--record-experts: backend %s does not say what its routers choose: use the native one", f.backend)
	}
	r := stream.NewRecorder(l.name, m.Layers, m.Experts, m.TopK)
	m.Routed = r.Routed
	return func() error {
		r.End()
		if r.Full {
			a.notice("--record-experts: %d tokens are recorded, a file holds no more", len(r.Choices.Tokens))
		}
		out, err := replace.New(f.recordExperts, 0o644)
		if err != nil {
			return err
		}
		defer out.Cleanup()
		if err := r.Choices.Write(out); err != nil {
			return err
		}
		return out.CloseAtomicallyReplace()
	}, nil
}
