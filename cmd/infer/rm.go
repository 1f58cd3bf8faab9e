package main

import (
	"github.com/spf13/cobra"

	"terrace/internal/units"
)

func init() { register(newRmCommand) }

func newRmCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "rm NAME…",
		Short:   "Delete models from the cache",
		Long:    "Deletes models and unfinished downloads of them from the cache, and presets. Local files and the Hugging Face cache are never touched.",
		Example: "  infer rm gemma3:270m",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageErrorf("rm: want the NAME of a model ('infer list' shows them)")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			h, _, err := a.newHub()
			if err != nil {
				return err
			}
			for _, name := range args {
				if gone, err := a.presets().Remove(name); err != nil || gone {
					if err != nil {
						return err
					}
					a.notice("%s: preset removed", name)
					continue
				}
				freed, err := h.Remove(cmd.Context(), name)
				if err != nil {
					return hubError(err)
				}
				a.notice("%s: removed, %s freed", name, units.FormatBytes(freed))
			}
			return nil
		},
	}
}
