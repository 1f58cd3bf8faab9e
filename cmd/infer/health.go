package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

func init() { register(newHealth) }

// healthTimeout is how long a server may take to say how it is.
const healthTimeout = 2 * time.Second

func newHealth(a *app) *cobra.Command {
	addr := ""
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a server whether it takes requests",
		Long: "Ask 'infer serve' at an address whether it takes requests: exit code 0 where it does, 1 where it does not or drains. " +
			"For health checks of images that have no other program (deploy/Dockerfile).",
		Example: "  infer health --addr 127.0.0.1:8080",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return a.health(addr) },
	}
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:8080", "address of the server, HOST:PORT")
	return cmd
}

func (a *app) health(addr string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return usageErrorf("--addr %s: %v", addr, err)
	}
	r, err := http.NewRequestWithContext(a.ctx, http.MethodGet, "http://"+addr+"/health", http.NoBody)
	if err != nil {
		return usageErrorf("--addr %s: %v", addr, err)
	}
	answer, err := (&http.Client{Timeout: healthTimeout}).Do(r)
	if err != nil {
		return fmt.Errorf("%s does not answer: %w", addr, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if err != nil {
		return fmt.Errorf("%s: %w", addr, err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", addr, answer.Status, text)
	}
	_, err = fmt.Fprintln(a.stdout, "ok")
	return err
}
