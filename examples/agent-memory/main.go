// Command agent-memory talks to a model that remembers: its memory is a session of
// farfield serve, which survives restarts of this program and of the server.
//
//	farfield serve --model DIR --store sessions
//	go run ./examples/agent-memory -memory agent.json
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/client"
)

const beginning = "A talk between a user and a helpful agent.\n"

func main() {
	server := flag.String("server", "http://127.0.0.1:8181", "address of farfield serve")
	path := flag.String("memory", "agent.json", "file that names the session")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c := &client.Client{URL: *server, Key: os.Getenv("FARFIELD_KEY")}
	if err := talk(ctx, c, *path, os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// talk answers each line of in. The memory that path names is opened, or begun.
func talk(ctx context.Context, c *client.Client, path string, in io.Reader, out io.Writer) error {
	memory, err := open(ctx, c, path)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "(a memory of %d tokens, %d bytes)\n", memory.Tokens, memory.Bytes)
	lines, end := make(chan string), make(chan error, 1)
	go func() { // a Scan does not end with ctx
		s := bufio.NewScanner(in)
		for s.Scan() {
			select {
			case lines <- s.Text():
			case <-ctx.Done():
				return
			}
		}
		end <- s.Err()
	}()
	for turn := uint64(1); ; turn++ {
		select {
		case line := <-lines:
			if memory, err = answer(ctx, c, path, memory, line, turn, out); err != nil {
				return err
			}
		case err := <-end:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// open returns the session of the file at path. Where there is none, or the server
// has lost it or its state, a session begins.
func open(ctx context.Context, c *client.Client, path string) (client.Session, error) {
	var s client.Session
	text, err := os.ReadFile(path)
	if err == nil {
		if err := json.Unmarshal(text, &s); err != nil {
			return s, fmt.Errorf("%s: %w", path, err)
		}
		id := s.ID
		s, err = c.Get(ctx, id)
		var e *client.Error
		switch {
		case errors.As(err, &e) && e.Status == http.StatusNotFound:
		case errors.As(err, &e) && e.Status == http.StatusGone: // its state is lost
			if err := remove(ctx, c, id); err != nil {
				return s, err
			}
		default:
			return s, err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	if s, err = c.Create(ctx, client.Input{Text: beginning}); err != nil {
		return s, err
	}
	return s, save(path, s)
}

// answer draws one turn in a fork, which then becomes the memory: a turn that breaks
// off leaves the memory as it was.
func answer(ctx context.Context, c *client.Client, path string, memory client.Session, line string, turn uint64, out io.Writer) (_ client.Session, err error) {
	next, err := c.Fork(ctx, memory.ID)
	if err != nil {
		return memory, err
	}
	isKept := false
	defer func() {
		if !isKept {
			err = errors.Join(err, remove(ctx, c, next.ID))
		}
	}()
	if _, err := c.Append(ctx, next.ID, client.Input{Text: "User: " + line + "\nAgent:"}); err != nil {
		return memory, err
	}
	var said strings.Builder
	fmt.Fprint(out, "Agent:")
	_, err = c.Generate(ctx, next.ID, client.Draw{MaxTokens: 60, Temperature: 0.7, Seed: turn}, func(t client.Token) error {
		said.WriteString(t.Text)
		fmt.Fprint(out, t.Text)
		return nil
	})
	if err != nil {
		return memory, err
	}
	if !strings.HasSuffix(said.String(), "\n") {
		if _, err := c.Append(ctx, next.ID, client.Input{Text: "\n"}); err != nil {
			return memory, err
		}
		fmt.Fprintln(out)
	}
	if err := save(path, next); err != nil { // from here on the fork is the memory
		return memory, err
	}
	isKept = true
	return next, remove(ctx, c, memory.ID)
}

// remove deletes a session, also after ctx has ended. A request that was cancelled holds the
// session until its step ends (409), and the server may limit rates (429).
func remove(ctx context.Context, c *client.Client, id string) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer stop()
	for wait := 200 * time.Millisecond; ; wait *= 2 {
		err := c.Delete(ctx, id)
		var e *client.Error
		switch {
		case err == nil:
			return nil
		case wait > 5*time.Second || !errors.As(err, &e) || e.Status != http.StatusConflict && e.Status != http.StatusTooManyRequests:
			return fmt.Errorf("session %s is left: %w", id, err)
		}
		time.Sleep(max(wait, e.RetryAfter))
	}
}

// save names the session in the file at path. The rename is the moment of the change.
func save(path string, s client.Session) error {
	text, err := json.Marshal(map[string]string{"id": s.ID})
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".part", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}
