// Package load drives a server that "farfield serve" started with mixed traffic, and reports what
// it answered, how fast, and whether the process grew.
package load

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// options are the flags of a run.
type options struct {
	model, command, address string
	store, memory, disk     string
	duration, pause         time.Duration
	clients, sessions       int
	seed                    uint64
	checkEvery              int
}

// Run drives a server as args say and prints a report. It returns an error if an argument is
// invalid, the server does not start, an answer is wrong, or the process grew.
func Run(ctx context.Context, args []string, stdout io.Writer) error {
	var o options
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	f.StringVar(&o.model, "model", "", "model to serve")
	f.StringVar(&o.command, "command", "", "farfield command (built from the checkout)")
	f.StringVar(&o.address, "addr", "", "drive this server, such as http://127.0.0.1:8181, and start none")
	f.StringVar(&o.store, "store", "", "store of the started server (a temporary folder)")
	f.StringVar(&o.memory, "memory", "256MiB", "memory of states and prefixes of the started server")
	f.StringVar(&o.disk, "disk", "64MiB", "size of snapshots of the started server")
	f.DurationVar(&o.duration, "for", 10*time.Minute, "duration; growth is judged from 2m on")
	f.DurationVar(&o.pause, "pause", 0, "largest pause of a client between two requests")
	f.IntVar(&o.clients, "clients", 16, "clients at a time")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the requests")
	f.IntVar(&o.sessions, "sessions", 0, "hold this many sessions in memory alone, and use each in turn, in place of mixed traffic")
	f.IntVar(&o.checkEvery, "check", 16, "compare every n-th text with the same request alone")
	if err := f.Parse(args); err != nil {
		return err
	}
	if (o.model == "") == (o.address == "") || f.NArg() > 0 || o.clients < 1 || o.duration <= 0 || o.checkEvery < 1 {
		return errors.New("needs -model or -addr, and positive -clients, -for and -check")
	}
	t := &target{url: strings.TrimRight(o.address, "/")}
	if o.address == "" {
		stop, err := start(ctx, &o, t)
		if err != nil {
			return err
		}
		defer stop()
	}
	if o.sessions > 0 {
		return hold(ctx, &o, t, stdout)
	}
	return drive(ctx, &o, t, stdout)
}

// start starts a server and fills t. stop ends it and removes its temporary folders.
func start(ctx context.Context, o *options, t *target) (stop func(), err error) {
	dir, err := os.MkdirTemp("", "farfield-load-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	if o.command == "" {
		o.command = filepath.Join(dir, "farfield")
		build := exec.CommandContext(ctx, "go", "build", "-o", o.command, "./cmd/farfield")
		build.Dir = ".."
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build: %w: %s", err, out)
		}
	}
	if t.store = o.store; t.store == "" {
		t.store = filepath.Join(dir, "store")
	}
	c := exec.Command(o.command, "serve", "--model", o.model, "--addr", "127.0.0.1:0", "--memory", o.memory, "--beyond-context")
	if o.sessions == 0 {
		c.Args = append(c.Args, "--store", t.store, "--disk", o.disk)
	}
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	url, found := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !found {
		return nil, errors.Join(fmt.Errorf("the first line is %q", line), err, c.Process.Kill(), c.Wait())
	}
	t.url, t.process = url, c.Process.Pid
	return func() {
		_ = c.Process.Signal(os.Interrupt) // one that has ended needs none
		_ = c.Wait()                       // its status adds nothing to the report
		os.RemoveAll(dir)
	}, nil
}
