// Package health implements the verb health: whether a server answers requests.
package health

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
)

// Command is the verb health: it asks a server that serve started whether it answers requests.
type Command struct {
	Addr    string        `default:"127.0.0.1:8181" placeholder:"ADDR" help:"Address of the server (${default})."`
	Timeout time.Duration `default:"3s" placeholder:"TIME" help:"Time for the answer (${default})."`
}

// Help returns the long help text with examples.
func (c *Command) Help() string {
	return "Exits with status 0 if /readyz of the server answers 200, and with 1 otherwise, as probes of containers ask." + flags.JoinExamples("farfield health --addr 127.0.0.1:8181")
}

// maxAnswer bounds the bytes of an answer that are shown.
const maxAnswer = 1 << 10

// Run asks the server. It returns an error if it does not answer 200 in time.
func (c *Command) Run(e *env.Env) error {
	if c.Timeout <= 0 {
		return env.InputErrorf("--timeout: %v is not above 0", c.Timeout)
	}
	host, port, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return env.InputErrorf("--addr: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() { // the server listens on all
		host = "127.0.0.1"
	}
	ctx, cancel := context.WithTimeout(e.Context, c.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", "http://"+net.JoinHostPort(host, port)+"/readyz", nil)
	if err != nil {
		return env.InputErrorf("--addr: %w", err)
	}
	answer, err := (&http.Client{Transport: &http.Transport{}}).Do(r) // without a proxy
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: status %d: %s", c.Addr, answer.StatusCode, text)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(e.Stdout, "ready")
	return err
}
