// Package serve implements the verb serve: a model behind HTTP.
package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/serve"
)

// Command is the verb serve: it answers HTTP requests with a model.
type Command struct {
	Model string   `required:"" placeholder:"DIR" help:"Run, checkpoint, published folder, or name of a model."`
	Name  []string `sep:"," placeholder:"NAME" help:"Names of the model in requests and answers, the first in answers (base name of its folder)."`
	Addr  string   `default:"127.0.0.1:8181" placeholder:"ADDR" help:"Address to listen on; port 0: any (${default})."`
	Store string   `placeholder:"DIR" help:"Folder that keeps sessions (in memory alone)."`
	Keys  string   `placeholder:"FILE" help:"File of keys, one a line; a request needs one."`
	Host  []string `placeholder:"NAME" help:"Name of this server in Host headers, besides localhost."`

	Origin []string `placeholder:"URL" help:"Another origin whose pages may send requests, such as https://example.org."`

	Memory        string        `default:"1GiB" placeholder:"BYTES" help:"Memory of states and prefixes (${default})."`
	Disk          string        `default:"8GiB" placeholder:"BYTES" help:"Size of snapshots in --store (${default})."`
	MaxSessions   flags.Count   `name:"max-sessions" default:"1024" placeholder:"N" help:"Sessions (${default})."`
	SessionTTL    time.Duration `name:"session-ttl" default:"30m" placeholder:"TIME" help:"Time without a request after which sessions without --store may make room for others (${default})."`
	SessionTokens flags.Count   `name:"session-tokens" default:"1048576" placeholder:"N" help:"Tokens of a session (${default})."`
	MaxTokens     flags.Count   `name:"max-tokens" default:"65536" placeholder:"N" help:"Tokens of one answer (${default})."`
	Queue         flags.Count   `default:"256" placeholder:"N" help:"Requests of the model that run or wait (${default})."`
	BeyondContext bool          `name:"beyond-context" help:"Let texts go on beyond the context that the model was trained with, where they get worse."`
	Strict        bool          `help:"Refuse unknown fields of requests also where they are null or empty."`
	Rate          float64       `placeholder:"X" help:"Requests a second of a key or an address; 0: any (0)."`
	AccessLog     bool          `name:"access-log" help:"Write a line for each request to standard error, not only for those that fail with 5xx or are slow."`
	Slow          time.Duration `default:"10s" placeholder:"TIME" help:"Time to the first byte of an answer from which a request is slow (${default})."`
	Grace         time.Duration `default:"10s" placeholder:"TIME" help:"Time for running requests after SIGTERM (${default})."`
	flags.Opening
}

// Help returns the long help text with examples.
func (c *Command) Help() string {
	return "Open the address in a browser to write, search, classify and look at attention. Programs for OpenAI's API use http://ADDR/v1 for completions, chat and embeddings. " +
		"docs/serve.md lists all endpoints, among them sessions that survive a restart (--store). The first line of standard output is \"listening on http://ADDR\". " +
		"SIGTERM lets running requests end, saves all states and exits with status 0." + flags.JoinExamples(
		"farfield serve --model run/001",
		"farfield serve --model SmolLM --store states --addr 127.0.0.1:0",
		"farfield serve --model all-MiniLM-L6-v2 --addr 0.0.0.0:8181 --keys keys.txt --host search.example.org",
	)
}

// headerTime bounds the time of a request's header.
const headerTime = 10 * time.Second

// Memory beside the model and --memory, before garbage is collected harder: a share of --memory and a constant.
// Snapshots that are written, rows of passes and buffers of connections need it.
const (
	workShare = 4
	workBytes = 64 << 20
)

// garbage is the garbage that memory may hold, in percent of its content. States are large and have no
// pointers: to collect them often costs little.
const garbage = 25

// idleTime is the time after which a connection without requests is closed.
const idleTime = 2 * time.Minute

// Run answers requests until the context of e ends. It returns an error if flags, keys or
// model are invalid, if the address or the store is in use, or if states cannot be saved.
func (c *Command) Run(e *env.Env) error {
	o, err := c.options()
	if err != nil {
		return env.MarkInput(err)
	}
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(garbage))
	}
	listener, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return env.InputErrorf("--addr: %w", err)
	}
	defer listener.Close()
	m, err := c.open(e, o)
	if err != nil {
		return env.MarkInput(err)
	}
	runs.PrintRules(e.Notes(), m.Model)
	if m.memory > 0 && os.Getenv("GOMEMLIMIT") == "" {
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(o.ModelBytes + m.memory + m.memory/workShare + workBytes))
	}
	if len(c.Name) > 0 {
		o.Name, o.Aliases = c.Name[0], c.Name[1:]
	}
	o.Log = slog.New(slog.NewTextHandler(e.Notes(), nil))
	handler, err := serve.New(*o)
	if err != nil {
		return errors.Join(err, m.close(context.Background()))
	}
	if at, ok := listener.Addr().(*net.TCPAddr); ok && !at.IP.IsLoopback() && len(o.Keys) == 0 {
		fmt.Fprintf(e.Notes(), "%s: other machines may reach this address, and no --keys are given\n", at)
	}
	if o.Card.VectorNote != "" {
		fmt.Fprintf(e.Notes(), "/v1/embeddings: %s\n", o.Card.VectorNote)
	}
	if o.Chat != nil && o.Chat.Refused != nil {
		fmt.Fprintf(e.Notes(), "%v; /v1/chat/completions is refused\n", o.Chat.Refused)
	}
	if m.manager != nil {
		if ids := m.manager.Damaged(); len(ids) > 0 {
			fmt.Fprintf(e.Notes(), "--store: damaged records of sessions: %d, such as %q; requests get 410 until DELETE removes them\n", len(ids), ids[0])
		}
	}
	base, cancel := context.WithCancel(context.Background())
	defer cancel()
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: 1 << 16,
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    discardLog(),
	}
	if _, err := fmt.Fprintf(e.Stdout, "listening on http://%s\n", listener.Addr()); err != nil {
		return errors.Join(err, m.close(context.Background()))
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err = <-failed:
	case <-e.Context.Done():
		err = c.stop(handler, server, cancel)
		<-failed
	}
	return errors.Join(err, m.close(context.Background()))
}

// stop ends the server: it waits --grace for running requests, while probes are answered, and then cancels them.
func (c *Command) stop(handler *serve.Server, server *http.Server, cancel func()) error {
	handler.Stop()
	grace, stop := context.WithTimeout(context.Background(), c.Grace)
	defer stop()
	for handler.CountRunning() > 0 && grace.Err() == nil {
		select {
		case <-grace.Done():
		case <-time.After(stopWait):
		}
	}
	if err := server.Shutdown(grace); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	cancel()
	last, stop := context.WithTimeout(context.Background(), endTime)
	defer stop()
	if err := server.Shutdown(last); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return server.Close()
}

// stopWait is the time between two counts of running requests.
const stopWait = 10 * time.Millisecond

// endTime is the time in which cancelled requests end.
const endTime = 5 * time.Second

// options returns the options that the flags give. It returns an error if a flag or the file
// of keys is invalid.
func (c *Command) options() (*serve.Options, error) {
	if c.Rate < 0 || c.Rate > 0 && c.Rate < 1e-3 {
		return nil, fmt.Errorf("--rate: %g is neither 0 nor at least 0.001", c.Rate)
	}
	if c.Grace < 0 {
		return nil, fmt.Errorf("--grace: %v is negative", c.Grace)
	}
	if c.Slow < 0 {
		return nil, fmt.Errorf("--slow: %v is negative", c.Slow)
	}
	if c.SessionTTL < 0 {
		return nil, fmt.Errorf("--session-ttl: %v is negative", c.SessionTTL)
	}
	o := &serve.Options{MaxTokens: int(c.MaxTokens), MaxSession: int64(c.SessionTokens), MaxQueue: int(c.Queue), Rate: c.Rate, Strict: c.Strict,
		BeyondContext: c.BeyondContext, LogAll: c.AccessLog, Slow: max(c.Slow, 1)} // 0 is the default of Options, and of the flag any time
	for i, name := range c.Name {
		if name == "" || strings.ContainsFunc(name, unicode.IsControl) || slices.Contains(c.Name[:i], name) {
			return nil, fmt.Errorf("--name: name %d, %q, is empty, has control characters or is given before", i+1, name)
		}
	}
	for _, origin := range c.Origin {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != origin {
			return nil, fmt.Errorf("--origin: %q is no origin, such as https://example.org, without a path", origin)
		}
		o.Origins = append(o.Origins, origin)
	}
	if host, _, err := net.SplitHostPort(c.Addr); err != nil {
		return nil, fmt.Errorf("--addr: %w", err)
	} else if _, err := netip.ParseAddr(host); err != nil && host != "" {
		o.Hosts = append(o.Hosts, strings.TrimSuffix(host, "."))
	}
	for _, name := range c.Host {
		host := strings.TrimSuffix(name, ".")
		if _, err := netip.ParseAddr(host); err != nil && (host == "" || strings.ContainsFunc(host, func(c rune) bool { return c == ':' || c == '/' || unicode.IsSpace(c) })) {
			return nil, fmt.Errorf("--host: %q is no name of a host; leave out scheme, port and path", name)
		}
		o.Hosts = append(o.Hosts, host)
	}
	if c.Keys == "" {
		return o, nil
	}
	keys, err := readKeys(c.Keys)
	if err != nil {
		return nil, fmt.Errorf("--keys: %w", err)
	}
	o.Keys = keys
	return o, nil
}

// maxKeys bounds the keys of a file.
const maxKeys = 1000

// readKeys returns the keys of a file, one a line. Empty lines and lines with # are skipped.
// It returns an error if there is none, or too many, or one has a space or is too short.
func readKeys(path string) ([]string, error) {
	f, err := infile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var keys []string
	lines := bufio.NewScanner(f)
	for number := 1; lines.Scan(); number++ {
		text := lines.Text()
		if number == 1 {
			text = strings.TrimPrefix(text, infile.ByteOrderMark)
		}
		key := strings.TrimSpace(text)
		if key == "" || key[0] == '#' {
			continue
		}
		switch {
		case len(key) < minKey || strings.ContainsFunc(key, func(c rune) bool { return c < '!' || c > '~' }):
			return nil, fmt.Errorf("%s: line %d is no key of at least %d printable ASCII characters without spaces", path, number, minKey)
		case len(keys) == maxKeys:
			return nil, fmt.Errorf("%s: has more than %d keys", path, maxKeys)
		}
		keys = append(keys, key)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s: has no key", path)
	}
	return keys, nil
}

// minKey is the number of characters of the shortest key.
const minKey = 8
