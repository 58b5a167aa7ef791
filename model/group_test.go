package model

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/rng"
)

func group(t testing.TB, m *Model) *SessionGroup {
	t.Helper()
	g, err := m.NewSessionGroup()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// tokensOf returns n tokens of the vocabulary of c.
func tokensOf(c Config, seed uint64, n int) []int32 {
	key, ids := rng.New(seed), make([]int32, n)
	for i := range ids {
		ids[i] = int32(key.Uint64(uint64(i)) % uint64(c.Vocab))
	}
	return ids
}

// testStepTogether compares sessions of a group with sessions alone: prompts beside single
// tokens, of other positions and numbers of sequences.
func testStepTogether(t *testing.T) {
	schedule := [][]int{ // tokens of each session in each call; 0: it is left out
		{7, 0, 1, 0}, {1, 20, 0, 1}, {1, 1, 5, 1}, {12, 1, 1, 1}, {1, 1, 1, 9}, {1, 1, 1, 1},
	}
	batches := []int{1, 1, 2, 1}
	for name, c := range decoders() {
		c.Context = 40
		m := made(t, c)
		g := group(t, m)
		alone, together := make([]*Session, len(batches)), make([]*Session, len(batches))
		for i, b := range batches {
			alone[i] = session(t, m, b)
			var err error
			if together[i], err = g.NewSession(b); err != nil {
				t.Fatal(err)
			}
		}
		for call, sizes := range schedule {
			var steps []SessionStep
			var want [][]float
			for i, n := range sizes {
				if n == 0 {
					continue
				}
				ids := tokensOf(c, uint64(10*call+i), batches[i]*n)
				logits, err := alone[i].Step(t.Context(), ids, n)
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, slices.Clone(logits))
				steps = append(steps, SessionStep{Session: together[i], Tokens: ids, SkipLogits: call == 1 && i == 1})
			}
			g.StepTogether(steps)
			for i, s := range steps {
				switch {
				case s.Err != nil:
					t.Fatalf("%s, call %d, step %d: %v", name, call, i, s.Err)
				case s.SkipLogits && s.Logits != nil:
					t.Errorf("%s, call %d, step %d: logits that are not wanted", name, call, i)
				case !s.SkipLogits && !slices.Equal(s.Logits, want[i]):
					t.Errorf("%s, call %d, step %d: logits differ from a session alone", name, call, i)
				}
			}
		}
		for i := range alone {
			a, err := alone[i].AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := together[i].AppendBinary(nil); err != nil || !slices.Equal(a, b) {
				t.Errorf("%s: session %d has another state than alone: %v", name, i, err)
			}
			restored, err := g.RestoreSession(a)
			if err != nil {
				t.Fatal(err)
			}
			ids := tokensOf(c, 99, batches[i])
			want, err := alone[i].Step(t.Context(), ids, 1)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := restored.Step(t.Context(), ids, 1); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: session %d gives other logits when restored: %v", name, i, err)
			}
		}
	}
}

func TestSessionsTogetherHaveTheBitsOfSessionsAlone(t *testing.T) {
	t.Run(check.Precision, testStepTogether)
}

// Steps allocate nothing once the group and its sessions have their memory.
func TestStepsOfAGroupDoNotAllocate(t *testing.T) {
	if raced {
		t.Skip("under the race detector")
	}
	plain := tiny(Decoder, "linear")
	plain.Positions = Rotary
	plain.Conv, plain.Decay = 3, LearnedDecay
	for name, c := range map[string]Config{"linear": plain, "fastmax": tiny(Decoder, "fastmax"), "llama": cases()["llama"]} {
		c.Context = 512
		g := group(t, made(t, c))
		steps := make([]SessionStep, 5)
		for i := range steps {
			s, err := g.NewSession(1)
			if err != nil {
				t.Fatal(err)
			}
			steps[i] = SessionStep{Session: s, Tokens: []int32{int32(i)}}
		}
		step := func() {
			g.StepTogether(steps)
			for i := range steps {
				if err := steps[i].Err; err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 200 {
			step()
		}
		if n := testing.AllocsPerRun(100, step); n >= 1 {
			t.Errorf("%s: a step of five sessions allocates %v times", name, n)
		}
	}
}

// Sessions are made and restored while others step, as a server does.
func TestSessionsMadeBesideStepsHaveTheirBits(t *testing.T) {
	c := with(tiny(Decoder, "fastmax"), func(c *Config) { c.Set = map[string]string{"window": "4"} })
	m := made(t, c)
	g := group(t, m)
	first := session(t, m, 1)
	ids := tokensOf(c, 1, 6)
	if _, err := first.Step(t.Context(), ids, len(ids)); err != nil {
		t.Fatal(err)
	}
	data, err := first.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	next := tokensOf(c, 2, 1)
	logits, err := first.Step(t.Context(), next, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(logits)

	const n = 20
	ready, errs := make(chan *Session, n), make(chan error, 1)
	go func() {
		defer close(ready)
		for range n {
			s, err := g.RestoreSession(data)
			if err == nil {
				_, err = g.NewSession(1)
			}
			if err != nil {
				errs <- err
				return
			}
			ready <- s
		}
	}()
	made := 0
	for s := range ready {
		made++
		steps := []SessionStep{{Session: s, Tokens: next}}
		g.StepTogether(steps)
		if steps[0].Err != nil || !slices.Equal(steps[0].Logits, want) {
			t.Fatalf("session %d: error %v, or other logits than alone", made, steps[0].Err)
		}
	}
	if made != n {
		t.Fatalf("%d sessions of %d were made: %v", made, n, <-errs)
	}
}

// A group keeps no session that it stepped.
func TestGroupLetsGoOfSessions(t *testing.T) {
	m := made(t, with(tiny(Decoder, "fastmax"), func(c *Config) { c.Positions = Rotary })) // its first layer reads rows by token
	g := group(t, m)
	var kept weak.Pointer[Session]
	func() {
		s, err := g.NewSession(1)
		if err != nil {
			t.Fatal(err)
		}
		steps := []SessionStep{{Session: s, Tokens: []int32{1}}}
		if g.StepTogether(steps); steps[0].Err != nil {
			t.Fatal(steps[0].Err)
		}
		kept = weak.Make(s)
	}()
	runtime.GC()
	if kept.Value() != nil {
		t.Error("a session is kept")
	}
	runtime.KeepAlive(g)
}

// Prompts longer than a piece are divided among passes, beside other sessions.
func TestLongPromptsOfAGroup(t *testing.T) {
	c := tiny(Decoder, "fastmax")
	c.Positions = Rotary
	m := made(t, c)
	g := group(t, m)
	var steps []SessionStep
	var want [][]float
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
	m.main.entry.embed.W.Data[10*c.Width] = float(math.Inf(1))
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
