package farfield_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farfield-ml/farfield"
)

// A method that waits for another one ends with its context.
func TestWaitingMethodsEndWithTheirContext(t *testing.T) {
	dir, remove := saveDecoder("fastmax")
	defer remove()
	s := newText(t, open(t, dir), "once")
	running, resume := make(chan bool), make(chan bool)
	ended := make(chan error)
	go func() {
		n := 0
		_, err := s.Generate(t.Context(), farfield.GenerateOptions{Tokens: 8, Stream: func(string) error {
			if n++; n == 1 {
				running <- true
				<-resume
			}
			return nil
		}})
		ended <- err
	}()
	<-running
	for name, method := range map[string]func(ctx context.Context) error{
		"Append":    func(ctx context.Context) error { return s.Append(ctx, "more") },
		"AppendIDs": func(ctx context.Context) error { return s.AppendIDs(ctx, 1) },
		"Generate":  func(ctx context.Context) error { _, err := s.Generate(ctx, farfield.GenerateOptions{}); return err },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error)
		go func() { waited <- method(ctx) }()
		cancel()
		if err := <-waited; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	resume <- true
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n := s.Tokens(); n != 4+8 {
		t.Errorf("the text has %d tokens", n)
	}
}

// endsAfter is a context that ends after a number of looks at it.
type endsAfter struct {
	context.Context
	looks *atomic.Int64
}

func (c endsAfter) Err() error {
	if c.looks.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// An Append that ends early can be made again.
func TestInterruptedAppendAddsNothing(t *testing.T) {
	for _, mechanism := range []string{"fastmax", "softmax"} {
		dir, remove := saveDecoder(mechanism)
		defer remove()
		m := open(t, dir)
		long := strings.Repeat("a text, ", 200)
		want := nextIDs(t, newText(t, m, "once", long))
		for looks := range 5 {
			s, left := newText(t, m, "once"), new(atomic.Int64)
			left.Store(int64(looks))
			if err := s.Append(endsAfter{t.Context(), left}, long); !errors.Is(err, context.Canceled) || s.Tokens() != 4 {
				t.Fatalf("%s: after %d looks the text has %d tokens, %v", mechanism, looks, s.Tokens(), err)
			}
			if err := s.Append(t.Context(), long); err != nil {
				t.Fatal(err)
			}
			if got := nextIDs(t, s); !slices.Equal(got, want) {
				t.Errorf("%s: after %d looks: %v, want %v", mechanism, looks, got, want)
			}
		}
	}
}

// newText returns the session of a text.
func newText(t *testing.T, m *farfield.Model, parts ...string) *farfield.Session {
	t.Helper()
	s, err := m.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range parts {
		if err := s.Append(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// nextIDs returns some tokens after a text.
func nextIDs(t *testing.T, s *farfield.Session) []int32 {
	t.Helper()
	ids, err := s.GenerateIDs(t.Context(), farfield.GenerateOptions{Tokens: 20, Temperature: 1})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// The state of a linear mechanism has one size, and the keys of softmax are those of a window.
func TestSessionsSayTheirMemory(t *testing.T) {
	for mechanism, grows := range map[string]bool{"fastmax": false, "softmax": true} {
		dir, remove := saveDecoder(mechanism) // of the context 32
		defer remove()
		m := open(t, dir)
		bytes := func(tokens int) int64 {
			s := newText(t, m, strings.Repeat("a", tokens))
			nextIDs(t, s)
			return s.Bytes()
		}
		short, full, long := bytes(1), bytes(12), bytes(5000)
		if short <= 0 || short < full != grows || long > full {
			t.Errorf("%s: %d bytes after 21 tokens, %d after 32, %d after 5020", mechanism, short, full, long)
		}
	}
}
