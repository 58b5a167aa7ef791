//go:build !float64

package model

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
)

// Prompts longer than a piece are divided among passes, beside other sessions.
func TestLongPromptsOfAGroup(t *testing.T) {
	c := tiny(Decoder, "fastmax")
	c.Positions = Rotary
	m := made(t, c)
	g := group(t, m)
	var steps []SessionStep
	var want [][]float32
	for i, n := range []int{stepRows + 700, 1, stepRows, 300, 1} {
		ids := tokensOf(c, uint64(i), n)
		logits, err := session(t, m, 1).Step(t.Context(), ids, n)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, slices.Clone(logits))
		s, err := g.NewSession(1)
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, SessionStep{Session: s, Tokens: ids})
	}
	g.StepTogether(steps)
	for i, s := range steps {
		if s.Err != nil || !slices.Equal(s.Logits, want[i]) {
			t.Errorf("step %d differs from a session alone: %v", i, s.Err)
		}
	}
}

// An error of one step leaves the others as they are.
func TestErrorsOfAGroupStayApart(t *testing.T) {
	c := tiny(Decoder, "fastmax")
	c.Tied = false
	m, other := made(t, c), made(t, c)
	m.main.entry.embed.W.Data[10*c.Width] = float32(math.Inf(1))
	g := group(t, m)
	ids := []int32{1, 2, 3}
	want, err := session(t, m, 1).Step(t.Context(), ids, 3)
	if err != nil {
		t.Fatal(err)
	}
	made := func() *Session {
		s, err := g.NewSession(1)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	good, last := made(), made()
	steps := []SessionStep{
		{Session: good, Tokens: ids},
		{Tokens: ids},
		{Session: made(), Tokens: []int32{1, 10, 2}},
		{Session: session(t, other, 1), Tokens: ids},
		{Session: good, Tokens: ids},
		{Session: made(), Tokens: []int32{11}},
		{Session: made()},
		{Session: made(), Tokens: make([]int32, 8)},
		{Session: session(t, m, 2), Tokens: ids},
		{Session: last, Tokens: ids},
	}
	g.StepTogether(steps)
	for i, text := range map[int]string{
		1: "session: it is nil",
		3: "another model",
		4: "an earlier step",
		5: "position 0 is 11, the vocabulary has 11",
		6: "0 tokens",
		7: "positions: 8 are needed, the learned table has 7",
		8: "3 elements, the session has 2 sequences",
	} {
		if err := fmt.Sprint(steps[i].Err); !strings.Contains(err, text) || steps[i].Logits != nil {
			t.Errorf("step %d: error is %s, want one with %q", i, err, text)
		}
	}
	if !errors.Is(steps[2].Err, attention.ErrNonFinite) {
		t.Errorf("a step of an infinite row: %v", steps[2].Err)
	}
	for _, i := range []int{0, 9} {
		if s := steps[i]; s.Err != nil || !slices.Equal(s.Logits, want) || s.Session.Tokens() != 3 {
			t.Errorf("step %d depends on others: %v", i, s.Err)
		}
	}
	if _, err := made().model.NewSessionGroup(); err != nil {
		t.Error(err)
	}
	_, err = (&Model{config: Config{Kind: Encoder}}).NewSessionGroup()
	if err == nil || !strings.Contains(err.Error(), "kind is encoder") {
		t.Errorf("a group of an encoder: %v", err)
	}
}
