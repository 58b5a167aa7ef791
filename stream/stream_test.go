//go:build !float64

package stream

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/safetensors"
	"github.com/farfield-ml/farfield/internal/streamfile"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

func TestMain(m *testing.M) {
	suite.KeepFilesInMemory()
	suite.CollectRarely()
	m.Run()
}

// problem is a call in memory, and in files.
type problem struct {
	name   string
	order  int
	set    map[string]string
	shape  Shape
	causal bool
	mask   bool
	decay  bool
	shift  tensor.Float // added to queries and keys
}

var problems = []problem{
	{name: "fastmax", shape: Shape{2, 4, 2, 331, 331, 6, 5}, causal: true},
	{name: "fastmax", shape: Shape{1, 2, 2, 77, 331, 6, 5}, causal: true, mask: true},
	{name: "fastmax", order: 1, set: map[string]string{"bounded": "true"}, shape: Shape{2, 2, 1, 200, 333, 7, 4}, mask: true},
	{name: "taylorshift", shape: Shape{1, 3, 1, 331, 331, 5, 5}, causal: true, decay: true},
	{name: "linear", shape: Shape{1, 2, 2, 500, 20, 6, 3}},
	{name: "retention", shape: Shape{1, 2, 2, 200, 200, 4, 4}, causal: true},
	{name: "fastmax", set: map[string]string{"window": "7"}, shape: Shape{1, 2, 2, 200, 200, 4, 4}, causal: true},
	{name: "local", set: map[string]string{"window": "9"}, shape: Shape{1, 2, 2, 200, 200, 4, 4}, causal: true},
}

func (p *problem) String() string {
	return fmt.Sprintf("%s/order=%d/causal=%v/N=%d/M=%d%v", p.name, p.order, p.causal, p.shape.N, p.shape.M, p.set)
}

func (p *problem) mechanism(t *testing.T) attention.Mechanism {
	t.Helper()
	m, err := mechanism.New(p.name, mechanism.Options{Order: p.order, Heads: p.shape.H, Width: p.shape.D, Set: p.set})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// call draws the problem.
func (p *problem) call() *attention.Call {
	s, key := &p.shape, rng.New(3)
	draw := func(i uint64, n int) []tensor.Float {
		x := make([]tensor.Float, n)
		for j := range x {
			x[j] = tensor.Float(key.Fold(i).Normal(uint64(j)))
		}
		return x
	}
	n, m := int(s.N), int(s.M)
	c := &attention.Call{
		Q:      tensor.HeadsOf(draw(0, s.B*s.H*n*s.D), s.B, s.H, n, s.D),
		K:      tensor.HeadsOf(draw(1, s.B*s.Hkv*m*s.D), s.B, s.Hkv, m, s.D),
		V:      tensor.HeadsOf(draw(2, s.B*s.Hkv*m*s.Dv), s.B, s.Hkv, m, s.Dv),
		Causal: p.causal,
	}
	if p.mask {
		c.KeyMask = make([]bool, s.B*m)
		for j := range c.KeyMask {
			c.KeyMask[j] = key.Fold(3).Intn(uint64(j), 4) > 0
		}
	}
	if p.decay {
		g := draw(4, s.B*s.Hkv*m)
		for j := range g {
			g[j] = -g[j] * g[j] / 50
		}
		c.LogG = tensor.HeadsOf(g, s.B, s.Hkv, m, 1)
	}
	return c
}

// made is array.New for what fits.
func made[E array.Element](t *testing.T, name string, data []E, shape ...int) *array.Array {
	t.Helper()
	a, err := array.New(name, data, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// file writes the problem into a safetensors file.
func file(t *testing.T, c *attention.Call) string {
	t.Helper()
	list := []*array.Array{
		made(t, "q", c.Q.Data, c.Q.B, c.Q.H, c.Q.N, c.Q.D),
		made(t, "k", c.K.Data, c.K.B, c.K.H, c.K.N, c.K.D),
		made(t, "v", c.V.Data, c.V.B, c.V.H, c.V.N, c.V.D),
	}
	if c.KeyMask != nil {
		list = append(list, made(t, "keymask", c.KeyMask, c.K.B, c.K.N))
	}
	if c.LogG.D > 0 {
		list = append(list, made(t, "log_g", c.LogG.Data, c.K.B, c.K.H, c.K.N))
	}
	path := filepath.Join(t.TempDir(), "in.safetensors")
	var b bytes.Buffer
	if err := safetensors.Write(&b, list, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// source opens a file.
func source(t *testing.T, path string) *arraySource {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	a, err := newArraySource(f)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// output opens an output file.
func output(t *testing.T, path string, rank int) *Output {
	t.Helper()
	o, err := NewFileOutput(path, rank)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// steps is what a compensated state gives in as few calls as there can be.
func (p *problem) steps(t *testing.T, m attention.Mechanism, c *attention.Call, chunk int) tensor.Heads {
	t.Helper()
	s := &p.shape
	st, err := m.NewState(attention.Shape{B: s.B, H: s.H, Hkv: s.Hkv, D: s.D, Dv: s.Dv, Chunk: chunk, Carry: attention.Compensated})
	if err != nil {
		t.Fatal(err)
	}
	o := tensor.NewHeads(s.B, s.H, int(s.N), s.Dv)
	part := func(j0, j1 int) *attention.Call {
		x := &attention.Call{Q: c.Q, K: c.K.Tokens(j0, j1), V: c.V.Tokens(j0, j1)}
		if c.KeyMask != nil {
			for b := range s.B {
				x.KeyMask = append(x.KeyMask, c.KeyMask[b*c.K.N:][j0:j1]...)
			}
		}
		if c.LogG.D > 0 {
			x.LogG = c.LogG.Tokens(j0, j1)
		}
		return x
	}
	lead := c.K.N
	if p.causal {
		lead -= c.Q.N
	}
	if err := st.Absorb(part(0, lead)); err != nil {
		t.Fatal(err)
	}
	if p.causal {
		err = st.Step(o, part(lead, c.K.N))
	} else {
		err = st.Read(o, &attention.Call{Q: c.Q})
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// near holds outputs against the call in memory.
func (p *problem) near(t *testing.T, m attention.Mechanism, c *attention.Call, got []tensor.Float) {
	t.Helper()
	o := tensor.NewHeads(c.Q.B, c.Q.H, c.Q.N, c.V.D)
	if err := m.Forward(o, c, nil); err != nil {
		t.Fatal(err)
	}
	want := make([]float64, len(o.Data))
	for i, x := range o.Data {
		want[i] = float64(x)
	}
	size := check.MaxAbs(c.V.Data) + check.MaxAbs(want)
	s := c.Shape()
	bound := m.Plan(s).Bound
	s.Form = attention.Step
	bound += m.Plan(s).Bound
	if bound == 0 { // retention, or softmax in a window: both calls may err by their limit
		limit := 2 * check.SoftmaxLimits[tensor.Float]().Output(1, size)
		if m.Traits().Linear {
			limit = 2 * check.LinearLimits[tensor.Float](c.Q.D, c.K.N).Output(1, terms(c)*check.MaxAbs(c.V.Data))
		}
		worst := check.ErrorRatio(got, want, limit)
		t.Logf("off by %.3g limits from the call in memory", worst)
		if worst > 1 {
			t.Errorf("off by %.3g limits from the call in memory", worst)
		}
		return
	}
	heads, err := m.Diagnose(c)
	if err != nil {
		t.Fatal(err)
	}
	var cond float64
	for _, h := range heads {
		cond = max(cond, float64(h.MaxCondition))
	}
	worst := check.ErrorRatio(got, want, bound*cond*size)
	t.Logf("off by %.3g limits from the call in memory", worst)
	if worst > 1 {
		t.Errorf("off by %.3g limits from the call in memory", worst)
	}
}

// terms is the largest sum over keys and channels of |q_c·k_c|/√D that a query has.
func terms(c *attention.Call) (most float64) {
	for i := range c.Q.B * c.Q.H {
		b, h := i/c.Q.H, i%c.Q.H
		keys := make([]float64, c.K.D)
		for j := range c.K.N {
			for e, y := range c.K.Head(b, h/(c.Q.H/c.K.H)).Row(j) {
				keys[e] += math.Abs(float64(y))
			}
		}
		for r := range c.Q.N {
			var sum float64
			for e, y := range c.Q.Head(b, h).Row(r) {
				sum += math.Abs(float64(y)) * keys[e]
			}
			most = max(most, sum/math.Sqrt(float64(c.Q.D)))
		}
	}
	return most
}

// brittle is a source that fails once it has given some tokens.
type brittle struct {
	Source
	left int64
}

var errBrittle = errors.New("the input is gone")

func (b *brittle) FillWindow(w *Window, query, key int64, n int) (int, error) {
	if b.left -= int64(n); b.left < 0 {
		return 0, errBrittle
	}
	return b.Source.FillWindow(w, query, key, n)
}

// spoil overwrites the rows of a partial output that its checkpoint does not know.
func spoil(t *testing.T, p *problem, out string) {
	t.Helper()
	c, err := streamfile.ReadFile(out+CheckpointSuffix, 1<<30)
	if err != nil || c == nil {
		if c == nil && err == nil {
			return
		}
		t.Fatal(err)
	}
	checkHeader(t, out+CheckpointSuffix, c)
	at := int64(0)
	if planPasses(p.shape, p.causal)[c.Pass].role&Queries != 0 {
		at = c.Tokens
	}
	f, err := os.OpenFile(out+PartialSuffix, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, _ := f.Stat()
	row := int64(p.shape.Dv) * 4
	head := info.Size() - int64(p.shape.B*p.shape.H)*p.shape.N*row
	for i := range int64(p.shape.B * p.shape.H) {
		if _, err := f.WriteAt(bytes.Repeat([]byte{0xff}, int((p.shape.N-at)*row)), head+(i*p.shape.N+at)*row); err != nil {
			t.Fatal(err)
		}
	}
}

// flipLastByte changes the last byte of a file.
func flipLastByte(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedRowsAreRefused changes each row of a partial output by a bit: rows that the
// checkpoint counts are refused, the others are written anew.
func TestDamagedRowsAreRefused(t *testing.T) {
	t.Parallel()
	p := problem{name: "fastmax", shape: Shape{1, 2, 1, 41, 41, 4, 3}, causal: true}
	m, in := p.mechanism(t), file(t, p.call())
	for _, step := range []int64{1, 3} {
		for _, name := range []string{"o.npy", "o.raw"} {
			out := filepath.Join(t.TempDir(), name)
			run := func(tokens int64) error {
				to := output(t, out, 3)
				to.RowStep = step
				o := Options{Causal: true, Window: 5, Checkpoint: out + CheckpointSuffix, CheckpointInterval: time.Nanosecond}
				_, err := Run(context.Background(), m, &brittle{source(t, in), tokens}, to, o)
				return err
			}
			if err := run(1000); err != nil {
				t.Fatal(err)
			}
			whole, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(out); err != nil {
				t.Fatal(err)
			}
			if err := run(23); !errors.Is(err, errBrittle) {
				t.Fatal(err)
			}
			c, err := streamfile.ReadFile(out+CheckpointSuffix, 1<<30)
			if err != nil || c == nil || c.Tokens == 0 {
				t.Fatalf("%+v, %v", c, err)
			}
			partial, err := os.ReadFile(out + PartialSuffix)
			if err != nil {
				t.Fatal(err)
			}
			const row = 3 * 4
			rows, counted := int((41+step-1)/step), int((c.Tokens+step-1)/step)
			for i := range 2 * rows {
				place, isCounted := len(partial)-(2*rows-i)*row, i%rows < counted
				if name == "o.raw" {
					isCounted = i/2 < counted
				}
				partial[place] ^= 1
				if err := os.WriteFile(out+PartialSuffix, partial, 0o666); err != nil {
					t.Fatal(err)
				}
				partial[place] ^= 1
				if !isCounted {
					continue
				}
				refused(t, run(0), out+PartialSuffix+": damaged: the rows of head ")
			}
			if err := run(1000); err != nil { // the last changed row is not counted
				t.Fatal(err)
			}
			if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, whole) {
				t.Errorf("%s, one row in %d: the output differs, %v", name, step, err)
			}
		}
	}
}

// cut is a pipe that breaks.
type cut struct {
	*rawSource
	left int64
}

func (c *cut) FillWindow(w *Window, query, key int64, n int) (int, error) {
	if c.left -= int64(n); c.left < 0 {
		return 0, errBrittle
	}
	return c.rawSource.FillWindow(w, query, key, n)
}

func refused(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

// TestCheckpointsAreBound refuses checkpoints of something else, with the field
// named, and leaves them and the partial output as they are.
func TestCheckpointsAreBound(t *testing.T) {
	t.Parallel()
	p := problems[0]
	c := p.call()
	in := file(t, c)
	dir := t.TempDir()
	out := filepath.Join(dir, "o.npy")
	o := Options{Causal: true, Window: 50, Checkpoint: out + CheckpointSuffix, CheckpointInterval: time.Nanosecond}
	if _, err := Run(context.Background(), p.mechanism(t), &brittle{source(t, in), 120}, output(t, out, 4), o); !errors.Is(err, errBrittle) {
		t.Fatal(err)
	}
	saved, err := os.ReadFile(o.Checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	partial, err := os.ReadFile(out + PartialSuffix)
	if err != nil {
		t.Fatal(err)
	}
	again := func(p problem, in string, causal bool, want ...string) {
		t.Helper()
		o := o
		o.Causal = causal
		_, err := Run(context.Background(), p.mechanism(t), source(t, in), output(t, out, 4), o)
		refused(t, err, want...)
		if now, _ := os.ReadFile(o.Checkpoint); !bytes.Equal(now, saved) {
			t.Error("the checkpoint has changed")
		}
		if now, _ := os.ReadFile(out + PartialSuffix); !bytes.Equal(now, partial) {
			t.Error("the partial output has changed")
		}
	}
	other := p
	other.name = "linear"
	again(other, in, true, "checkpoint: mechanism is fastmax, this run has linear")
	other = p
	other.order = 1
	again(other, in, true, "checkpoint: setting is ")
	again(p, in, false, "checkpoint: causal is true, this run has false")
	other = p
	other.shape.N, other.shape.M = 330, 330
	again(p, file(t, other.call()), true, "checkpoint: N is 331, this run has 330")
	touched := file(t, c)
	if err := os.Chtimes(touched, time.Time{}, time.Unix(1e9, 0)); err != nil {
		t.Fatal(err)
	}
	again(p, touched, true, "checkpoint: file of q: modified is ", "2001-09-09T01:46:40Z")

	spoiled := bytes.Clone(saved)
	spoiled[len(spoiled)/2]++
	for _, x := range []struct {
		b    []byte
		want string
	}{
		{spoiled, "checkpoint: corrupt or truncated: checksum is "},
		{saved[:len(saved)-1], "checkpoint: corrupt or truncated"},
		{[]byte("FFSC\x02\x00\x00\x00________"), "checkpoint: version is 2, this program reads 1"},
		{[]byte("PK__________"), `checkpoint: begins with "PK__", not "FFSC"`},
		{nil, "checkpoint: truncated: 0 bytes"},
	} {
		if err := os.WriteFile(o.Checkpoint, x.b, 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := Run(context.Background(), p.mechanism(t), source(t, in), output(t, out, 4), o)
		refused(t, err, x.want)
	}
	if err := os.WriteFile(o.Checkpoint, saved, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(out+PartialSuffix, 1000); err != nil {
		t.Fatal(err)
	}
	_, err = Run(context.Background(), p.mechanism(t), source(t, in), output(t, out, 4), o)
	refused(t, err, "o.npy.partial: has 1000 bytes, the checkpoint needs ")

	o.Restart = true
	r, err := Run(context.Background(), p.mechanism(t), source(t, in), output(t, out, 4), o)
	if err != nil || r.Resumed != 0 {
		t.Fatalf("anew: %v, %d tokens of a run before", err, r.Resumed)
	}
}

// checkHeader holds the header of a checkpoint against all of it.
func checkHeader(t *testing.T, path string, c *streamfile.Checkpoint) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	h, err := streamfile.ReadHeader(bytes.NewReader(b), int64(len(b)))
	if err != nil || h.Tokens != c.Tokens || h.Pass != c.Pass || !slices.Equal(h.Bound, c.Bound) || h.State.Bytes != int64(len(c.State)) {
		t.Errorf("header %+v, %v of a checkpoint of pass %d, token %d, with a state of %d bytes", h, err, c.Pass, c.Tokens, len(c.State))
	}
	b[len(b)/2] ^= 1
	if _, err := streamfile.ReadHeader(bytes.NewReader(b), int64(len(b))); err == nil {
		t.Error("a changed bit is not seen")
	}
}

// Every way to shorten a checkpoint is refused, and so is every flipped bit.
func TestChangedCheckpointIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c")
	c := &streamfile.Checkpoint{Bound: []comm.Field{{Name: "N", Value: "3"}}, Pass: 1, Tokens: 1 << 40, Digests: []uint32{7}, State: []byte("state")}
	if err := c.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := streamfile.Parse(b)
	if err != nil || got.Tokens != c.Tokens || string(got.State) != "state" || got.Digests[0] != 7 {
		t.Fatalf("%+v, %v", got, err)
	}
	for n := range b {
		if _, err := streamfile.Parse(b[:n]); err == nil {
			t.Errorf("%d of %d bytes are read", n, len(b))
		}
		bad := bytes.Clone(b)
		bad[n] ^= 0x10
		if _, err := streamfile.Parse(bad); err == nil {
			t.Errorf("byte %d may be another", n)
		}
	}
	if _, err := streamfile.ReadFile(path, int64(len(b)-1)); err == nil {
		t.Error("a checkpoint may have any size")
	}
}

// roomless is a mechanism whose states have no room anywhere.
type roomless struct {
	attention.Mechanism
	t *testing.T
}

func (m roomless) Plan(s attention.Shape) attention.Plan {
	p := m.Mechanism.Plan(s)
	p.State *= 1 << 30
	return p
}

func (m roomless) NewState(attention.Shape) (attention.State, error) {
	m.t.Error("the state is made before the budget is looked at")
	return nil, errors.New("there is no room")
}

func TestStatesBeyondTheBudgetAreNotMade(t *testing.T) {
	t.Parallel()
	p := problems[0]
	out := filepath.Join(t.TempDir(), "o.npy")
	_, err := Run(context.Background(), roomless{p.mechanism(t), t}, source(t, file(t, p.call())), output(t, out, 4), Options{Causal: true})
	refused(t, err, "Memory: 268435456 bytes; the state and 3 windows of one token take ")
}

// windowless is a source whose tokens have no room anywhere.
type windowless struct {
	*rawSource
	t *testing.T
}

func (s windowless) NewWindow(int, Role) *Window {
	s.t.Fatal("a window is made before the budget is looked at")
	return nil
}

func TestTokensBeyondTheBudgetAreNotMade(t *testing.T) {
	t.Parallel()
	r, err := NewPipeSource(nil, Shape{H: 1 << 20, Hkv: 1, D: 1 << 14, Dv: 1})
	if err != nil {
		t.Fatal(err)
	}
	m, err := mechanism.New("linear", mechanism.Options{Heads: r.Shape().H, Width: r.Shape().D})
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "o.npy")
	_, err = Run(t.Context(), m, windowless{r.(*rawSource), t}, output(t, out, 4), Options{Causal: true})
	refused(t, err, "Memory: 268435456 bytes; the state and 3 windows of one token take 2061")
}

func TestSyntheticSourceTakesNoMemory(t *testing.T) {
	if n := testing.AllocsPerRun(10, func() {
		if _, err := NewSyntheticSource(1, 1<<12, 1<<12, 9); err != nil {
			t.Fatal(err)
		}
	}); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

func TestDigestsJoin(t *testing.T) {
	t.Parallel()
	b := make([]byte, 5000)
	for i := range b {
		b[i] = byte(rng.New(5).Uint64(uint64(i)))
	}
	for _, n := range []int{0, 1, 7, 64, 1000, 2500} {
		parts := []uint32{crc32.Checksum(b[:n], castagnoli), crc32.Checksum(b[n:2*n], castagnoli)}
		if got, want := joinDigests(parts, int64(n)), crc32.Checksum(b[:2*n], castagnoli); got != want {
			t.Errorf("twice %d bytes: %08x, want %08x", n, got, want)
		}
	}
}

// BenchmarkSynthetic draws tokens of one head of width 32.
func BenchmarkSynthetic(b *testing.B) {
	s, err := NewSyntheticSource(1<<40, 32, 1, 9)
	if err != nil {
		b.Fatal(err)
	}
	const n = 4096
	w := s.NewWindow(n, Keys|Queries)
	for i := range b.N {
		if _, err := s.FillWindow(w, int64(i)*n, int64(i)*n, n); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/token")
}

// FuzzCheckpoint reads any bytes as a checkpoint, under a checksum that fits.
func FuzzCheckpoint(f *testing.F) {
	path := filepath.Join(f.TempDir(), "c")
	c := &streamfile.Checkpoint{Bound: []comm.Field{{Name: "N", Value: "3"}}, Pass: 1, Tokens: 1 << 40, Digests: []uint32{7}, State: []byte("state")}
	if err := c.WriteFile(path); err != nil {
		f.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b[:len(b)-4])
	f.Add([]byte("FFSC\x01\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\x7f"))
	f.Fuzz(func(t *testing.T, body []byte) {
		b := binary.LittleEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, castagnoli))
		var c *streamfile.Checkpoint
		var err error
		if n := check.AllocatedBytes(func() { c, err = streamfile.Parse(b) }); n > 1<<20+256*int64(len(b)) {
			t.Errorf("%d bytes are read in %d bytes of memory", len(b), n)
		}
		if err == nil && len(c.State) > len(b) {
			t.Errorf("a state of %d bytes in %d", len(c.State), len(b))
		}
	})
}

// A context that ends is heard between windows.
func TestWindowOfCostlyTokensIsShort(t *testing.T) {
	t.Parallel()
	src, err := NewSyntheticSource(1, 32, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range []int{2, 4} {
		m, err := mechanism.New("fastmax", mechanism.Options{Order: order, Heads: 1, Width: 32})
		if err != nil {
			t.Fatal(err)
		}
		r, err := newRun(m, src, NewDigestOutput(), Options{Causal: true, Memory: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		work := r.flops * 2 * float64(r.window)
		if order == 2 && r.window < maxWindow-r.chunk || order == 4 && (work > maxWork || work < maxWork/2) {
			t.Errorf("order %d: a window of %d tokens takes %.3g operations", order, r.window, work)
		}
	}
}

// read returns o of an output file.
func read(t *testing.T, path string) []float32 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a, err := array.ReadNPY(f)
	if err != nil {
		t.Fatal(err)
	}
	x, err := a.Float32()
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestStreamsEqualTheStepsOfAState holds streams, whatever their windows and threads, against the steps of
// a state in every bit, and against the call in memory within what is derived.
func TestStreamsEqualTheStepsOfAState(t *testing.T) {
	defer par.SetThreads(0)
	for _, p := range problems {
		t.Run(p.String(), func(t *testing.T) {
			m, c := p.mechanism(t), p.call()
			in := file(t, c)
			var want []float32
			for i, x := range []struct{ window, threads int }{{0, 1}, {1, 1}, {17, 2}, {96, 3}, {150, 2}} {
				par.SetThreads(x.threads)
				out := filepath.Join(t.TempDir(), "o.npy")
				r, err := Run(context.Background(), m, source(t, in), output(t, out, 4), Options{Causal: p.causal, Window: x.window})
				if err != nil {
					t.Fatal(err)
				}
				got := read(t, out)
				if i == 0 {
					want = p.steps(t, m, c, r.Chunk).Data
				}
				if k := differ(got, want); k >= 0 {
					t.Fatalf("window %d, %d threads: element %d is %v, steps give %v", x.window, x.threads, k, got[k], want[k])
				}
				if sum := crc32.Checksum(array.FloatBytes(want), castagnoli); r.Digest != sum {
					t.Errorf("digest is %08x, of the output %08x", r.Digest, sum)
				}
				if names, _ := os.ReadDir(filepath.Dir(out)); len(names) != 1 {
					t.Errorf("left behind: %v", names)
				}
			}
			p.near(t, m, c, want)
		})
	}
}

// differ returns the first element that differs in a bit, -1 where there is none.
func differ(a, b []float32) int {
	if len(a) != len(b) {
		return min(len(a), len(b))
	}
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return i
		}
	}
	return -1
}

// TestThinnedOutputIsASubsetOfAllRows holds outputs of some rows against outputs of all rows.
func TestThinnedOutputIsASubsetOfAllRows(t *testing.T) {
	t.Parallel()
	p := problem{name: "fastmax", shape: Shape{1, 4, 2, 301, 301, 6, 5}, causal: true}
	m, c := p.mechanism(t), p.call()
	in, all := file(t, c), p.steps(t, m, c, 96)
	for _, every := range []int64{1, 2, 7, 100, 300, 301, 1000, 1 << 62, math.MaxInt64} {
		for _, window := range []int{1, 13, 200} {
			var heads, tokens []float32
			for h := range 4 {
				for n := 0; n < 301; n += int(every) {
					heads = append(heads, all.Head(0, h).Row(n)...)
				}
			}
			for n := 0; n < 301; n += int(every) {
				for h := range 4 {
					tokens = append(tokens, all.Head(0, h).Row(n)...)
				}
			}
			for name, want := range map[string][]float32{"o.npy": heads, "o.raw": tokens} {
				path := filepath.Join(t.TempDir(), name)
				out := output(t, path, 3)
				out.RowStep = every
				r, err := Run(context.Background(), m, source(t, in), out, Options{Causal: true, Window: window})
				if err != nil {
					t.Fatal(err)
				}
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.HasSuffix(b, array.FloatBytes(want)) || name == "o.raw" && len(b) != 4*len(want) {
					t.Errorf("%s: every %d of windows of %d: other rows are written", name, every, window)
				}
				if name == "o.npy" && len(read(t, path)) != len(want) {
					t.Errorf("every %d: other rows are written", every)
				}
				if sum := crc32.Checksum(array.FloatBytes(all.Data), castagnoli); r.Digest != sum {
					t.Errorf("the digest depends on the rows that are written")
				}
			}
		}
	}
}

// TestResumedStreamHasTheSameBits cuts runs off at many places, spoils what was written behind their
// checkpoints, and has them continue with other windows and threads, to the same
// bits.
func TestResumedStreamHasTheSameBits(t *testing.T) {
	defer par.SetThreads(0)
	key := rng.New(11)
	for pi, p := range problems {
		m, c := p.mechanism(t), p.call()
		in := file(t, c)
		want := filepath.Join(t.TempDir(), "o.npy")
		whole, err := Run(context.Background(), m, source(t, in), output(t, want, 4), Options{Causal: p.causal})
		if err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "o.npy")
		o := Options{Causal: p.causal, Checkpoint: out + CheckpointSuffix, CheckpointInterval: time.Nanosecond}
		cuts, resumed := 0, 0
		for try := uint64(0); ; try++ {
			draw := key.Fold(uint64(pi))
			o.Window = 1 + draw.Intn(3*try, 40)
			par.SetThreads(1 + draw.Intn(3*try+1, 3))
			src := &brittle{source(t, in), int64(1 + draw.Intn(3*try+2, 80))}
			r, err := Run(context.Background(), m, src, output(t, out, 4), o)
			if err == nil {
				if r.Digest != whole.Digest {
					t.Errorf("%v: digest is %08x after %d cuts, without %08x", &p, r.Digest, cuts, whole.Digest)
				}
				break
			}
			if !errors.Is(err, errBrittle) {
				t.Fatal(err)
			}
			if cuts++; r.Resumed > 0 {
				resumed++
			}
			if _, err := os.Stat(out); err == nil {
				t.Fatalf("%v: the output has its name before it is whole", &p)
			}
			spoil(t, &p, out)
		}
		if resumed < 2 {
			t.Errorf("%v: %d of %d runs continued", &p, resumed, cuts)
		}
		a, b := read(t, out), read(t, want)
		if k := differ(a, b); k >= 0 {
			t.Errorf("%v: after %d cuts element %d is %v, without %v", &p, cuts, k, a[k], b[k])
		}
		if names, _ := os.ReadDir(filepath.Dir(out)); len(names) != 1 {
			t.Errorf("left behind: %v", names)
		}
	}
}

// TestEndedContextLeavesACheckpoint ends runs by their context: they leave a checkpoint of the last token
// that they had.
func TestEndedContextLeavesACheckpoint(t *testing.T) {
	t.Parallel()
	p := problems[0]
	m, in := p.mechanism(t), file(t, p.call())
	out := filepath.Join(t.TempDir(), "o.npy")
	o := Options{Causal: true, Window: 10, Checkpoint: out + CheckpointSuffix, CheckpointInterval: time.Hour}
	var last int64
	for range 50 {
		ctx, cancel := context.WithCancel(context.Background())
		o.Progress = func(p Progress) {
			if last = p.DoneTokens; p.DoneTokens-p.ResumedTokens >= 50 {
				cancel()
			}
		}
		before := last
		r, err := Run(ctx, m, source(t, in), output(t, out, 4), o)
		cancel()
		if r.Resumed != before {
			t.Fatalf("goes on after %d tokens, stopped after %d", r.Resumed, before)
		}
		if err == nil {
			break
		}
		if err != context.Canceled {
			t.Fatal(err)
		}
	}
	if want := p.steps(t, m, p.call(), 96).Data; differ(read(t, out), want) >= 0 {
		t.Error("the output is not that of one run")
	}
}

// A second run finds the output, or the checkpoint, taken, and leaves both alone.
func TestStreamHasOneOwner(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("not every system has these locks")
	}
	p := problems[0]
	m, in := p.mechanism(t), file(t, p.call())
	out := filepath.Join(t.TempDir(), "o.npy")
	o := Options{Causal: true, Window: 10, Checkpoint: out + CheckpointSuffix, CheckpointInterval: time.Nanosecond}
	tried := false
	o.Progress = func(Progress) {
		if tried {
			return
		}
		tried = true
		again := o
		again.Progress = nil
		_, err := Run(context.Background(), m, source(t, in), output(t, out, 4), again)
		refused(t, err, "o.npy\" is in use by this process")
		elsewhere := again // with the checkpoint of this run
		_, err = Run(context.Background(), m, source(t, in), output(t, filepath.Join(filepath.Dir(out), "p.npy"), 4), elsewhere)
		refused(t, err, "o.npy.checkpoint\" is in use by this process")
	}
	if _, err := Run(context.Background(), m, source(t, in), output(t, out, 4), o); err != nil {
		t.Fatal(err)
	}
	if differ(read(t, out), p.steps(t, m, p.call(), 96).Data) >= 0 {
		t.Error("the output is not that of one run")
	}
	entries, err := os.ReadDir(filepath.Dir(out))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("the folder has %v, want the output alone", entries)
	}
}

// TestWholeButForItsName continues runs that ended between two of the last things
// that they do.
func TestWholeButForItsName(t *testing.T) {
	t.Parallel()
	p := problems[0]
	m, in := p.mechanism(t), file(t, p.call())
	for _, named := range []bool{false, true} {
		out := filepath.Join(t.TempDir(), "o.npy")
		o := Options{Causal: true, Checkpoint: out + CheckpointSuffix}
		r, err := newRun(m, source(t, in), output(t, out, 4), o)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.openRun(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.runPass(context.Background()); err != nil {
			t.Fatal(err)
		}
		c, err := r.newCheckpoint(nil)
		if err != nil {
			t.Fatal(err)
		}
		c.IsComplete = true
		if err := r.saveCheckpoint(c); err != nil {
			t.Fatal(err)
		}
		if named {
			if err := r.out.commitFile(); err != nil {
				t.Fatal(err)
			}
		}
		r.out.closeFile(true)
		path := out
		if !named {
			path += PartialSuffix
		}
		flipLastByte(t, path)
		_, err = Run(context.Background(), m, &brittle{source(t, in), 0}, output(t, out, 4), o)
		refused(t, err, path+": damaged: the rows of head ")
		flipLastByte(t, path)
		saved, err := os.ReadFile(o.Checkpoint)
		if err != nil {
			t.Fatal(err)
		}
		to := output(t, out, 4)
		rep, err := Run(context.Background(), m, &brittle{source(t, in), 0}, to, o)
		if err != nil {
			t.Fatal(err)
		}
		// The same output again: of the finished run, and of a new one.
		if err := os.WriteFile(o.Checkpoint, saved, 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := Run(context.Background(), m, &brittle{source(t, in), 0}, to, o); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(out); err != nil {
			t.Fatal(err)
		}
		if _, err := Run(context.Background(), m, source(t, in), to, Options{Causal: true}); err != nil {
			t.Fatal(err)
		}
		if rep.Resumed != p.shape.N || rep.Tokens != p.shape.N {
			t.Errorf("%d tokens, %d of them before; want %d", rep.Tokens, rep.Resumed, p.shape.N)
		}
		if differ(read(t, out), p.steps(t, m, p.call(), 96).Data) >= 0 {
			t.Error("the output is not that of one run")
		}
		if names, _ := os.ReadDir(filepath.Dir(out)); len(names) != 1 {
			t.Errorf("left behind: %v", names)
		}
	}
}

// records puts the tokens of a call behind each other, as raw sources have them.
func records(c *attention.Call) []float32 {
	var x []float32
	for n := range c.Q.N {
		for _, h := range []tensor.Heads{c.Q, c.K, c.V} {
			for i := range h.H {
				x = append(x, h.Head(0, i).Row(n)...)
			}
		}
	}
	return x
}

// TestRawInputEqualsArrays has raw files and pipes give what arrays give, pipes cut off and
// continued, too.
func TestRawInputEqualsArrays(t *testing.T) {
	t.Parallel()
	p := problem{name: "fastmax", shape: Shape{1, 4, 2, 301, 301, 6, 5}, causal: true}
	m, c := p.mechanism(t), p.call()
	data := array.FloatBytes(records(c))
	want := p.steps(t, m, c, 96)
	var tokens []float32
	for n := range want.N {
		for h := range want.H {
			tokens = append(tokens, want.Head(0, h).Row(n)...)
		}
	}
	heads := Shape{H: 4, Hkv: 2, D: 6, Dv: 5}
	pipe := func(b []byte) *rawSource {
		t.Helper()
		r, err := NewPipeSource(bytes.NewReader(b), heads)
		if err != nil {
			t.Fatal(err)
		}
		return r.(*rawSource)
	}
	sum := crc32.Checksum(array.FloatBytes(want.Data), castagnoli)
	expect := func(what string, r *Report, err error, got []byte) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if !bytes.Equal(got, array.FloatBytes(tokens)) {
			t.Errorf("%s: the output is not that of steps", what)
		}
		if r.Digest != sum || r.Shape.N != 301 || r.Tokens != 301 {
			t.Errorf("%s: digest %08x of %d rows, %d tokens; want %08x", what, r.Digest, r.Shape.N, r.Tokens, sum)
		}
	}

	var to bytes.Buffer
	r, err := Run(context.Background(), m, pipe(data), NewWriterOutput(&to), Options{Causal: true, Window: 7})
	expect("pipe to pipe", r, err, to.Bytes())

	in, out := filepath.Join(t.TempDir(), "in.raw"), filepath.Join(t.TempDir(), "o.raw")
	if err := os.WriteFile(in, data, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	src, err := NewRawFileSource(f, heads)
	if err != nil {
		t.Fatal(err)
	}
	r, err = Run(context.Background(), m, src, output(t, out, 0), Options{Causal: true, Window: 50})
	got, _ := os.ReadFile(out)
	expect("file to file", r, err, got)

	o := Options{Causal: true, Window: 50, Checkpoint: out + CheckpointSuffix, CheckpointInterval: time.Nanosecond}
	if _, err := Run(context.Background(), m, &cut{pipe(data), 150}, output(t, out, 0), o); !errors.Is(err, errBrittle) {
		t.Fatal(err)
	}
	other := bytes.Clone(data)
	other[17]++
	_, err = Run(context.Background(), m, pipe(other), output(t, out, 0), o)
	refused(t, err, "input: checksum of the first", "the checkpoint has")
	if !errors.Is(err, fault.ErrMismatch) {
		t.Errorf("%v is not fault.ErrMismatch", err)
	}
	_, err = Run(context.Background(), m, pipe(data[:len(data)/301*20]), output(t, out, 0), o)
	refused(t, err, "input: has 20 tokens, the checkpoint is of")
	end := output(t, out, 0)
	r, err = Run(context.Background(), m, pipe(data), end, o)
	got, _ = os.ReadFile(out)
	expect("pipe that continues", r, err, got)
	row := make([]float32, 5)
	if err := end.ReadRow(row, 0, 3, 300); err != nil || !slices.Equal(row, tokens[len(tokens)-5:]) {
		t.Errorf("the last row is %v, %v", row, err)
	}
	if r.Resumed < 50 {
		t.Errorf("goes on after %d tokens", r.Resumed)
	}

	_, err = Run(context.Background(), m, pipe(data[:len(data)-3]), NewWriterOutput(&to), Options{Causal: true})
	refused(t, err, "input: ends after 181 of the 184 bytes of token 300")
	_, err = Run(context.Background(), m, pipe(data), NewWriterOutput(&to), Options{})
	refused(t, err, "Causal: unmasked attention reads keys and then queries, and a pipe is read once")
	_, err = Run(context.Background(), m, pipe(data), NewWriterOutput(&to), Options{Causal: true, Checkpoint: "x"})
	refused(t, err, "Checkpoint: x: ")
	_, err = Run(context.Background(), m, pipe(data), output(t, filepath.Join(t.TempDir(), "o.npy"), 3), Options{Causal: true})
	refused(t, err, "o.npy: the header has the number of tokens")
}

func TestImpossibleRunsAreRefused(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	p := problems[0]
	m := p.mechanism(t)
	out := filepath.Join(t.TempDir(), "o.npy")
	c := p.call()
	c.V.Head(1, 1).Row(300)[2] = nan
	_, err := Run(context.Background(), m, source(t, file(t, c)), output(t, out, 4), Options{Causal: true, Window: 64})
	refused(t, err, "v: element [1,1,300,2] is NaN")
	if !errors.Is(err, fault.ErrInput) {
		t.Error("NaN is not bad input")
	}
	if names, _ := os.ReadDir(filepath.Dir(out)); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
	c = p.call()
	src := source(t, file(t, c))
	for _, x := range []struct {
		o    Options
		want string
	}{
		{Options{Memory: 1000}, "Memory: 1000 bytes; the state and 3 windows of one token take "},
		{Options{Memory: 30000}, "Memory: 30000 bytes; the state and 3 windows of one token take "},
		{Options{Memory: -1}, "Memory: -1 is negative"},
		{Options{Window: -1}, "Window: -1 is negative"},
		{Options{Window: 1 << 30}, "Window: 1073741824 tokens take "},
		{Options{Window: math.MaxInt}, fmt.Sprintf("Window: %d tokens take ", math.MaxInt)},
	} {
		_, err := Run(context.Background(), m, src, output(t, out, 4), x.o)
		refused(t, err, x.want)
	}
	_, err = Run(context.Background(), m, src, output(t, out, 3), Options{})
	refused(t, err, "o.npy: 3 dimensions have no room for B = 2 and H = 4")
	for name, want := range map[string]string{
		"softmax":   "mechanism: the state of softmax grows with the tokens",
		"linformer": "mechanism: linformer has no state: ",
		"local":     "Causal: local streams in causal calls alone",
		"retention": "Causal: retention streams in causal calls alone",
	} {
		m, err := mechanism.New(name, mechanism.Options{Heads: 4, Width: 6})
		if err != nil {
			t.Fatal(err)
		}
		_, err = Run(context.Background(), m, src, output(t, out, 4), Options{})
		refused(t, err, want)
	}
}

// TestOffsetsMayExceed32Bits reads and writes where offsets have more than 32 bits.
func TestOffsetsMayExceed32Bits(t *testing.T) {
	t.Parallel()
	const n, d = 1<<28 + 5, 4 // 4 GiB and 80 bytes a head
	dir := t.TempDir()
	row := []float32{1, 2, 3, 4}
	for _, name := range []string{"q", "k", "v"} {
		f, err := os.Create(filepath.Join(dir, name+".npy"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		head := array.NPYHeader(array.F4, []int{2, n, d})
		if _, err := f.Write(head); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(array.FloatBytes(row), int64(len(head))+(2*n-2)*d*4); err != nil {
			t.Skip(err)
		}
		if err := f.Truncate(int64(len(head)) + 2*n*d*4); err != nil {
			t.Skip(err)
		}
	}
	a, _, folder, err := OpenArraySource(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	w := a.NewWindow(3, Keys|Queries)
	if _, err := a.FillWindow(w, n-3, n-3, 3); err != nil {
		t.Fatal(err)
	}
	for _, x := range []tensor.Heads{w.Call.Q, w.Call.K, w.Call.V} {
		if differ(x.Head(0, 1).Row(1), row) >= 0 || x.Head(0, 1).Row(2)[0] != 0 || x.Head(0, 0).Row(1)[0] != 0 {
			t.Errorf("the last tokens are %v", x.Data)
		}
	}
	o := output(t, filepath.Join(dir, "o.npy"), 3)
	if err := o.bindShape(a.Shape()); err != nil {
		t.Fatal(err)
	}
	const diskFull = syscall.Errno(112) // ERROR_DISK_FULL of Windows
	err = o.createFile()
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EFBIG) || runtime.GOOS == "windows" && errors.Is(err, diskFull) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := o.writeRows(w.Call.V, n-3); err != nil {
		t.Fatal(err)
	}
	got := make([]float32, d)
	if _, err := o.file.ReadAt(array.FloatBytes(got), int64(len(o.header))+(2*n-2)*d*4); err != nil {
		t.Fatal(err)
	}
	if differ(got, row) >= 0 {
		t.Errorf("row %d of head 1 is written as %v", n-2, got)
	}
	o.closeFile(false)
}

// TestSyntheticTokensDoNotDependOnPieces draws the same numbers in any pieces.
func TestSyntheticTokensDoNotDependOnPieces(t *testing.T) {
	defer par.SetThreads(0)
	s, err := NewSyntheticSource(1<<40, 21, 2, 9)
	if err != nil {
		t.Fatal(err)
	}
	const at, n = 1<<39 + 7, 1000
	fill := func(at int64, n int) *Window {
		w := s.NewWindow(n, Keys|Queries)
		if _, err := s.FillWindow(w, at, at, n); err != nil {
			t.Fatal(err)
		}
		return w
	}
	par.SetThreads(1)
	whole := fill(at, n)
	par.SetThreads(3)
	for i0 := 0; i0 < n; {
		k := min(1+i0/3, n-i0)
		part := fill(at+int64(i0), k)
		for h := range 2 {
			for i := range k {
				if differ(part.Call.Q.Head(0, h).Row(i), whole.Call.Q.Head(0, h).Row(i0+i)) >= 0 ||
					differ(part.Call.K.Head(0, h).Row(i), whole.Call.K.Head(0, h).Row(i0+i)) >= 0 ||
					differ(part.Call.V.Head(0, h).Row(i), whole.Call.V.Head(0, h).Row(i0+i)) >= 0 {
					t.Fatalf("token %d of head %d depends on where its window begins", i0+i, h)
				}
			}
		}
		i0 += k
	}
	// Five deviations of the mean of independent numbers, and of their squares.
	u := slices.Clone(whole.Call.V.Data) // without the parts of v from the position and from k
	for i := range u {
		u[i] = 2*(u[i]-0.5-float32((at+int64(i/21%n))%(1<<20))/(1<<20)) - whole.Call.K.Data[i]
	}
	for _, x := range [][]float32{whole.Call.Q.Data, whole.Call.K.Data, u} {
		var sum, square float64
		for _, y := range x {
			sum += float64(y)
			square += float64(y) * float64(y)
		}
		k := float64(len(x))
		if math.Abs(sum/k) > 5/math.Sqrt(k) || math.Abs(square/k-1) > 5/math.Sqrt(k) {
			t.Errorf("mean %g, second moment %g of %v numbers", sum/k, square/k, k)
		}
	}
	if differ(whole.Call.Q.Head(0, 0).Row(0), whole.Call.Q.Head(0, 1).Row(0)) < 0 || differ(whole.Call.Q.Head(0, 0).Row(0), whole.Call.K.Head(0, 0).Row(0)) < 0 {
		t.Error("heads or arrays are the same")
	}
}
