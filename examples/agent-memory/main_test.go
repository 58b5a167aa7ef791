//go:build docs

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/client"
)

// A store holds the texts of sessions by id, in place of a server's states.
type store struct {
	texts  map[string]string
	n      int
	broken bool   // streams end before their last event
	busy   int    // deletions that are refused
	lost   string // session without its state
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct{ Text string }
	if text, _ := io.ReadAll(r.Body); len(text) > 0 {
		if err := json.Unmarshal(text, &in); err != nil {
			w.WriteHeader(400)
			return
		}
	}
	id, verb, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/v1/sessions"), "/"), "/")
	if _, found := s.texts[id]; id != "" && !found {
		w.WriteHeader(404)
		return
	}
	if id != "" && id == s.lost && r.Method != "DELETE" {
		w.WriteHeader(410)
		return
	}
	switch {
	case id == "" || verb == "fork":
		s.n++
		next := fmt.Sprint("s", s.n)
		s.texts[next] = s.texts[id] + in.Text
		id = next
		w.WriteHeader(201)
	case verb == "append":
		s.texts[id] += in.Text
	case verb == "generate":
		fmt.Fprint(w, "data: {\"id\":1,\"text\":\" Yes.\"}\n\n")
		if !s.broken {
			s.texts[id] += " Yes."
			fmt.Fprintf(w, "data: {\"ids\":[1],\"text\":\" Yes.\",\"tokens\":%d}\n\ndata: [DONE]\n\n", len(s.texts[id]))
		}
		return
	case r.Method == "DELETE" && s.busy > 0:
		s.busy--
		w.WriteHeader(409)
		return
	case r.Method == "DELETE":
		delete(s.texts, id)
		w.WriteHeader(204)
		return
	}
	fmt.Fprintf(w, `{"id":%q,"tokens":%d,"bytes":4096}`, id, len(s.texts[id]))
}

func TestMemorySurvivesARestartAndABrokenTurn(t *testing.T) {
	s := &store{texts: map[string]string{}}
	server := httptest.NewServer(s)
	defer server.Close()
	path := filepath.Join(t.TempDir(), "agent.json")
	run := func(lines string) (string, error) {
		var out strings.Builder
		err := talk(t.Context(), &client.Client{URL: server.URL}, path, strings.NewReader(lines), &out)
		return out.String(), err
	}
	if out, err := run("Are you there?\nAnd now?\n"); err != nil || !strings.HasSuffix(out, "Agent: Yes.\nAgent: Yes.\n") {
		t.Fatalf("%q, %v", out, err)
	}
	want := beginning + "User: Are you there?\nAgent: Yes.\nUser: And now?\nAgent: Yes.\n"
	if len(s.texts) != 1 || s.texts["s3"] != want {
		t.Errorf("after two turns: %q", s.texts)
	}
	s.broken, s.busy = true, 2
	if _, err := run("This is cut.\n"); err == nil {
		t.Error("a broken stream is no error")
	}
	if len(s.texts) != 1 || s.texts["s3"] != want {
		t.Errorf("after a broken turn: %q", s.texts)
	}
	s.broken = false
	if _, err := run("Still?\n"); err != nil {
		t.Fatal(err)
	}
	want += "User: Still?\nAgent: Yes.\n"
	if s.texts["s5"] != want {
		t.Errorf("after the turn that follows: %q", s.texts)
	}
	s.texts = map[string]string{} // a server without its store
	if _, err := run("Hello?\n"); err != nil || !strings.HasPrefix(s.texts["s7"], beginning) {
		t.Errorf("%q, %v", s.texts, err)
	}
	s.lost = "s7"
	if _, err := run(""); err != nil || len(s.texts) != 1 || s.texts["s8"] != beginning {
		t.Errorf("after a lost state: %q, %v", s.texts, err)
	}
}

func TestInterruptEndsThePrompt(t *testing.T) {
	server := httptest.NewServer(&store{texts: map[string]string{}})
	defer server.Close()
	ctx, stop := context.WithCancel(t.Context())
	in, keyboard := io.Pipe()
	defer keyboard.Close()
	time.AfterFunc(50*time.Millisecond, stop)
	err := talk(ctx, &client.Client{URL: server.URL}, filepath.Join(t.TempDir(), "agent.json"), in, io.Discard)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
