package main

import "github.com/spf13/cobra"

func init() { register(newStore) }

func newStore(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Args:  noCommand,
		Short: "Contexts that are kept: where they lie, and how they are compressed",
		RunE: func(cmd *cobra.Command, args []string) error {
			return usageErrorf("store: say what: 'infer store --help'")
		},
	}
	cmd.AddCommand(newStorePlace(a))
	return cmd
}
