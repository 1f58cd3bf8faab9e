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

type healthCommand struct {
	*app

	addr string
}

func newHealth(a *app) *cobra.Command {
	c := &healthCommand{app: a}
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a server whether it takes requests",
		Long: "Ask 'infer serve' at an address whether it takes requests: exit code 0 where it does, 1 where it does not or drains. " +
			"For health checks of images that have no other program (deploy/Dockerfile).",
		Example: "  infer health --addr 127.0.0.1:8080",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return c.run() },
	}
	cmd.Flags().StringVar(&c.addr, "addr", "127.0.0.1:8080", "address of the server, HOST:PORT")
	return cmd
}

func (c *healthCommand) run() error {
	if _, _, err := net.SplitHostPort(c.addr); err != nil {
		return usageErrorf("--addr %s: %v", c.addr, err)
	}
	r, err := http.NewRequestWithContext(c.ctx, http.MethodGet, "http://"+c.addr+"/health", http.NoBody)
	if err != nil {
		return usageErrorf("--addr %s: %v", c.addr, err)
	}
	answer, err := (&http.Client{Timeout: healthTimeout}).Do(r)
	if err != nil {
		return fmt.Errorf("%s does not answer: %w", c.addr, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if err != nil {
		return fmt.Errorf("%s: %w", c.addr, err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", c.addr, answer.Status, text)
	}
	_, err = fmt.Fprintln(c.stdout, "ok")
	return err
}
