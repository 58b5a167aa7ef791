package model

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/framed"
	"github.com/farfield-ml/farfield/internal/suite"
)

func TestMain(m *testing.M) {
	suite.KeepFilesInMemory()
	suite.CollectRarely()
	m.Run()
}

func session(t testing.TB, m *Model, batch int) *Session {
	t.Helper()
	s, err := m.NewSession(batch)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// step feeds tokens n0 ≤ n < n1 of each sequence of b.
func step(t testing.TB, s *Session, b *Batch, n0, n1 int) []float {
	t.Helper()
	var tokens []int32
	for row := range b.B {
		tokens = append(tokens, b.Tokens[row*b.N+n0:row*b.N+n1]...)
	}
	logits, err := s.Step(t.Context(), tokens, n1-n0)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(logits)
}

// at returns the logits [B,vocab] of token n of every sequence.
func at(all []float, b *Batch, vocab, n int) []float {
	var x []float
	for row := range b.B {
		x = append(x, all[(row*b.N+n)*vocab:][:vocab]...)
	}
	return x
}

// pieces of a sequence of 37 tokens.
var pieces = [][]int{{37}, {1, 36}, {20, 1, 1, 15}, slices.Repeat([]int{1}, 37)}

func testStepIsTheSequence(t *testing.T, limit float64) {
	for name, c := range decoders() {
		c.Context = 40
		m := made(t, c)
		b := batch(c, 3, 2, 37, false)
		all := logits(t, m, b)
		var last []float
		for _, cut := range pieces {
			s := session(t, m, b.B)
			n := 0
			var got []float
			for _, size := range cut {
				got = step(t, s, b, n, n+size)
				n += size
				want := widen(at(all, b, c.outputSize(), n-1))
				if r := check.ErrorRatio(got, want, limit*check.MaxAbs(want)); !(r <= 1) {
					t.Errorf("%s, pieces of %v: logits of token %d err by %.3g of the largest, %.3g is allowed", name, cut, n-1, r*limit, limit)
				}
			}
			if s.Tokens() != int64(b.N) {
				t.Errorf("%s: %d tokens after %d", name, s.Tokens(), b.N)
			}
			if last == nil {
				last = got
			} else if !slices.Equal(got, last) {
				t.Errorf("%s: the last logits depend on the pieces %v", name, cut)
			}
		}
	}
}

// The forms of a layer differ by some roundings, which two layers and their
// norms carry on: 50 of the largest logit at most have been seen.
func TestStepIsTheSequence(t *testing.T) {
	t.Run(check.Precision, func(t *testing.T) { testStepIsTheSequence(t, 64*check.Pick(0x1p-24, 0x1p-53)) })
}

// A prompt longer than what goes through the layers at a time.
func TestLongPrompt(t *testing.T) {
	c := tiny(Decoder, "fastmax")
	c.Positions = Rotary
	m := made(t, c)
	b := batch(c, 3, 2, stepRows+5, false)
	whole, parts := session(t, m, 2), session(t, m, 2)
	want := step(t, whole, b, 0, b.N)
	step(t, parts, b, 0, 300)
	if !slices.Equal(want, step(t, parts, b, 300, b.N)) {
		t.Error("logits depend on the pieces of the prompt")
	}
}

func TestMemoryOfStreamsIsConstant(t *testing.T) {
	c := tiny(Decoder, "fastmax")
	c.Positions = Sinusoidal // beyond the context, too
	m := made(t, c)
	b := batch(c, 3, 1, 300, false)
	s := session(t, m, 1)
	step(t, s, b, 0, 1)
	first := s.Bytes()
	for n := 1; n < b.N; n++ {
		step(t, s, b, n, n+1)
	}
	if last := s.Bytes(); first == 0 || last != first {
		t.Errorf("states have %d bytes, %d after the first token", last, first)
	}
}

func TestSnapshotsContinue(t *testing.T) {
	for name, c := range decoders() {
		c.Context = 40
		m := made(t, c)
		b := batch(c, 3, 2, 37, false)
		s := session(t, m, b.B)
		step(t, s, b, 0, 19)
		data, err := s.AppendBinary([]byte("before"))
		if err != nil {
			t.Fatal(err)
		}
		restored, err := m.RestoreSession(data[len("before"):])
		if err != nil {
			t.Fatal(err)
		}
		clone := s.Clone()
		want := step(t, s, b, 19, b.N)
		for _, c := range []*Session{restored, clone} {
			if !slices.Equal(want, step(t, c, b, 19, b.N)) {
				t.Errorf("%s: a restored or cloned session gives other bits", name)
			}
			if c.Tokens() != int64(b.N) {
				t.Errorf("%s: %d tokens after %d", name, c.Tokens(), b.N)
			}
		}
		again, err := restored.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if end, err := s.AppendBinary(nil); err != nil || !bytes.Equal(again, end) {
			t.Errorf("%s: snapshots of equal sessions differ", name)
		}
		s.Reset()
		if !slices.Equal(step(t, session(t, m, b.B), b, 0, 7), step(t, s, b, 0, 7)) {
			t.Errorf("%s: a reset session is not as a fresh one", name)
		}
	}
}

func TestSnapshotsAreChecked(t *testing.T) {
	c := tiny(Decoder, "fastmax")
	m := made(t, c)
	s := session(t, m, 2)
	step(t, s, batch(c, 1, 2, 5, false), 0, 5)
	data, err := s.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := range data {
		if n > 300 && n < len(data)-50 && n%7 > 0 {
			continue
		}
		if _, err := m.RestoreSession(data[:n]); err == nil {
			t.Fatalf("%d of %d bytes are accepted", n, len(data))
		}
		damaged := slices.Clone(data)
		damaged[n] ^= 0x10
		if _, err := m.RestoreSession(damaged); err == nil {
			t.Fatalf("a changed byte %d is accepted", n)
		}
	}
	other := made(t, with(c, func(c *Config) { c.Order = 4 }))
	if _, err := other.RestoreSession(data); err == nil || !strings.Contains(err.Error(), "another configuration") {
		t.Errorf("a snapshot of another model: %v", err)
	}
	text, err := json.Marshal(m.config)
	if err != nil {
		t.Fatal(err)
	}
	id := sha256.Sum256(append(text, check.Pick("F64", "F32")...))
	wide := slices.Clone(data)
	copy(wide[len(sessionMagic)+4:], id[:])
	if _, err := m.RestoreSession(check.SealSession(wide)); err == nil || !strings.Contains(err.Error(), "element type") {
		t.Errorf("a snapshot of another element type: %v", err)
	}
	newer := slices.Clone(data)
	newer[len(sessionMagic)] = 2
	if _, err := m.RestoreSession(newer); err == nil || !strings.Contains(err.Error(), "version is 2, this program reads 1") {
		t.Errorf("a snapshot of another version: %v", err)
	}
}

func TestStepsAreChecked(t *testing.T) {
	c := tiny(Decoder, "fastmax")
	m := made(t, c)
	s := session(t, m, 2)
	ids := func(n int) []int32 { return make([]int32, n) }
	bad := ids(4)
	bad[3] = 11
	_, encoder := made(t, tiny(Encoder, "fastmax")).NewSession(1)
	_, none := m.NewSession(0)
	_, vocab := s.Step(t.Context(), bad, 2)
	_, count := s.Step(t.Context(), ids(3), 2)
	_, nothing := s.Step(t.Context(), nil, 0)
	_, far := s.Step(t.Context(), ids(16), 8)
	for want, err := range map[string]error{
		"session: kind is encoder, needs decoder":                encoder,
		"session: batch 0, needs to be":                          none,
		"tokens: row 1, position 1 is 11, the vocabulary has 11": vocab,
		"tokens: has 3 elements, B·N is 2·2":                     count,
		"step: 0 tokens, needs at least 1":                       nothing,
		"positions: 8 are needed, the learned table has 7":       far,
	} {
		if !strings.Contains(errors.Join(err).Error(), want) {
			t.Errorf("error is %v, want one with %q", err, want)
		}
	}
	if s.Tokens() != 0 {
		t.Errorf("refused tokens count: %d", s.Tokens())
	}
}

// A token allocates nothing once the session has its memory.
func TestTokensDoNotAllocate(t *testing.T) {
	if raced {
		t.Skip("under the race detector")
	}
	all := map[string]Config{}
	for _, mechanism := range []string{"fastmax", "linear"} {
		c := tiny(Decoder, mechanism)
		c.Positions = Rotary
		c.Conv, c.Decay = 3, LearnedDecay
		all[mechanism] = c
	}
	for _, name := range []string{"llama", "mistral", "yarn", "qwen 3", "gemma", "phi", "gpt-neox", "gpt-2", "attention norm"} {
		all[name] = with(cases()[name], func(c *Config) { c.Context = 512 })
	}
	for name, c := range all {
		s := session(t, made(t, c), 1)
		token := []int32{1}
		step := func() {
			if _, err := s.Step(t.Context(), token, 1); err != nil {
				t.Fatal(err)
			}
		}
		for range 200 {
			step()
		}
		if n := testing.AllocsPerRun(100, step); n >= 1 {
			t.Errorf("%s: a token allocates %v times", name, n)
		}
	}
}

// The first layer of a session is looked up where tokens are all that it reads, at any
// length of a piece and up to the last position.
func TestSessionsLookUp(t *testing.T) {
	plain := tiny(Decoder, "linear")
	for name, c := range map[string]struct {
		Config
		want bool
	}{
		"plain":        {plain, true},
		"post-norm":    {with(plain, func(c *Config) { c.PostNorm = true }), true},
		"no positions": {with(plain, func(c *Config) { c.Positions = NoPosition }), true},
		"convolution":  {with(plain, func(c *Config) { c.Conv = 3 }), false},
		"large":        {with(plain, func(c *Config) { c.Vocab = 1 << 15 }), false},
		"no attention": {with(plain, func(c *Config) { c.Mechanism = "mamba-2" }), false},
		"entry norm":   {with(plain, func(c *Config) { c.EntryNorm = true }), false},
		"token types":  {with(plain, func(c *Config) { c.TokenTypes = 2 }), false},
		"entry scale":  {with(plain, func(c *Config) { c.EntryScale = 3 }), false},
		"qk-norm":      {with(plain, func(c *Config) { c.QKNorm = true }), false},
		"head norm":    {with(plain, func(c *Config) { c.AttentionNorm = true }), true},
		"first norm":   {with(plain, func(c *Config) { c.NoFirstNorm = true }), true},
		"offset":       {with(plain, func(c *Config) { c.PositionTable, c.PositionOffset = stepRows+9, 3 }), true},
		"parallel":     {with(plain, func(c *Config) { c.ParallelBlocks = ParallelOne }), true},
		"norm offset":  {with(plain, func(c *Config) { c.Norm, c.NormOffset = RMSNorm, true }), true},
	} {
		c.Context = stepRows + 5
		m := made(t, c.Config)
		s := session(t, m, 2)
		if got := s.frozen.first != nil; got != c.want {
			t.Errorf("%s: a lookup is there: %t, want %t", name, got, c.want)
		}
		b := batch(c.Config, 3, 2, c.Context, false)
		whole, parts := session(t, m, 2), session(t, m, 2)
		want := step(t, whole, b, 0, b.N)
		for _, cut := range [][2]int{{0, 1}, {1, 20}, {20, 300}, {300, 301}, {301, b.N - 1}, {b.N - 1, b.N}} {
			if got := step(t, parts, b, cut[0], cut[1]); cut[1] == b.N && !slices.Equal(got, want) {
				t.Errorf("%s: logits depend on the pieces of the prompt", name)
			}
		}
	}
}

func TestSessionsRunAtTheSameTime(t *testing.T) {
	c := tiny(Decoder, "taylorshift")
	c.Positions = Rotary
	m := made(t, c)
	b := batch(c, 3, 1, 30, false)
	want := step(t, session(t, m, 1), b, 0, b.N)
	var group sync.WaitGroup
	for range 3 {
		s := session(t, m, 1)
		group.Go(func() {
			var got []float
			for n := range b.N {
				var err error
				if got, err = s.Step(t.Context(), b.Tokens[n:n+1], 1); err != nil {
					t.Error(err)
					return
				}
			}
			if !slices.Equal(got, want) {
				t.Error("a session depends on others")
			}
		})
	}
	group.Wait()
}

// A batch that the snapshot has no rows for is refused before its memory is taken.
func TestBatchBeyondTheSnapshotIsRefused(t *testing.T) {
	m := made(t, with(tiny(Decoder, "fastmax"), func(c *Config) { c.Conv = 3 }))
	data, err := session(t, m, 2).AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	end := len(data) - 4
	binary.LittleEndian.PutUint64(data[sessionHeader-16:], maxSize)
	binary.LittleEndian.PutUint32(data[end:], crc32.Checksum(data[:end], framed.Castagnoli))
	if _, err := m.RestoreSession(data); err == nil || !strings.Contains(err.Error(), check.Pick("session: batch 16777216 with 384 bytes", "session: batch 16777216 with 768 bytes")) {
		t.Errorf("error is %v", err)
	}
}

// The losses of a session equal the losses of the sequence, with the same bits for any
// pieces.
func TestSessionLosses(t *testing.T) {
	for name, c := range decoders() {
		if c.Loss != CrossEntropy {
			continue
		}
		c.Context = 40
		m := made(t, c)
		b := batch(c, 3, 2, 37, false)
		want := make([]float64, b.B*b.N)
		if err := m.Losses(t.Context(), b, want); err != nil {
			t.Fatal(err)
		}
		var first []float64
		for _, cut := range pieces {
			s := session(t, m, b.B)
			got, n0 := make([]float64, len(want)), 0
			for _, n := range cut {
				var tokens, targets []int32
				for row := range b.B {
					tokens = append(tokens, b.Tokens[row*b.N+n0:][:n]...)
					targets = append(targets, b.Targets[row*b.N+n0:][:n]...)
				}
				part := make([]float64, b.B*n)
				if err := s.Losses(t.Context(), part, tokens, targets, n); err != nil {
					t.Fatal(err)
				}
				for row := range b.B {
					copy(got[row*b.N+n0:][:n], part[row*n:])
				}
				n0 += n
			}
			if first == nil {
				first = got
			}
			if !slices.Equal(got, first) {
				t.Errorf("%s: losses depend on the pieces %v", name, cut)
			}
			// Twice the limit of logits in TestStepIsTheSequence: a loss is the
			// difference of one of them and of a mean.
			if r := check.ErrorRatio(got, want, 2*64*check.UnitRoundoff[float]()*check.MaxAbs(logits(t, m, b))); !(r <= 1) {
				t.Errorf("%s: a loss is off by %.3g limits", name, r)
			}
		}
	}
}
