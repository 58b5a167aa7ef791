package stream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/streamfile"
	"github.com/farfield-ml/farfield/tensor"
)

// Options holds the settings of a run. The zero value is for unmasked attention without
// checkpoints.
type Options struct {
	Causal bool  // query i sees keys j ≤ i + (M-N)
	Memory int64 // bytes for the state, its snapshot and windows; 0: DefaultMemory
	Window int   // tokens of a window; 0: chosen by Memory

	// Checkpoint is the path of the checkpoint; "" means none.
	Checkpoint         string
	CheckpointInterval time.Duration // time between checkpoints; 0: 30 seconds
	Restart            bool          // ignore an existing checkpoint

	// AllowNonfinite accepts inputs of the sources of this package that are not finite, and
	// counts such output rows (Report.NonFinite) instead of returning an error.
	AllowNonfinite bool

	Progress func(Progress) // called after every window; may be nil

	// Ranks divides the tokens among ranks; nil means one process. All ranks call Run with the
	// same input, output and checkpoint path. Each rank writes a checkpoint of its own.
	Ranks *comm.Comm
}

const (
	DefaultMemory             = 256 << 20
	defaultCheckpointInterval = 30 * time.Second
)

// Progress is the progress of a run.
type Progress struct {
	DoneTokens, TotalTokens int64 // tokens of all passes; Total is -1 if unknown
	ResumedTokens           int64 // tokens of DoneTokens from earlier runs
}

// Report holds the sizes, times and errors of a run.
type Report struct {
	Shape       Shape
	Tokens      int64   // tokens of all passes, including earlier runs
	Resumed     int64   // tokens of earlier runs
	Window      int     // tokens of a window
	Chunk       int     // tokens of a chunk of the state; 0: no chunks
	StateBytes  int64   // bytes of the state
	Planned     int64   // bytes for the state, its snapshot and windows
	Seconds     float64 // of this run
	Filling     float64 // seconds of reading or generating windows; reading overlaps Computing
	Computing   float64 // seconds of the mechanism
	FLOPs       float64 // operations of products of features and values
	Checkpoints int     // number of checkpoints written
	Sent        int64   // bytes of states sent to other ranks
	Bound       float64 // error bound, as attention.Plan.Bound; 0: unknown
	NonFinite   int64   // output rows of this run that are not finite
	Digest      uint32  // CRC-32C of o, [B,H,N,Dv] in C order, little-endian
}

// pass is one pass over count tokens, with keys from firstKey and queries from firstQuery
// on. count is -1 if unknown.
type pass struct {
	role                        Role
	count, firstKey, firstQuery int64
	needsExchange               bool // whether the ranks exchange their states before it
}

// planPasses returns the passes of a call.
func planPasses(s Shape, causal bool) []pass {
	switch {
	case !causal:
		return []pass{{role: Keys, count: s.M}, {role: Queries, count: s.N}}
	case s.M > s.N:
		return []pass{{role: Keys, count: s.M - s.N}, {role: Keys | Queries, count: s.N, firstKey: s.M - s.N}}
	}
	return []pass{{role: Keys | Queries, count: s.N}}
}

// Run computes attention over the source src and writes it to out, which it closes. No other
// call may use src meanwhile. After an error, or when ctx ends, the last checkpoint remains, and the same call continues from it.
//
// An error in arguments, numbers or a checkpoint of another run is a farfield.ErrInput, the last a
// farfield.ErrMismatch as well, and an error for a file that another run holds a farfield.ErrInUse
// (errors.Is). Run also returns errors of files and the error of ctx.
func Run(ctx context.Context, m attention.Mechanism, src Source, out *Output, o Options) (*Report, error) {
	if s, ok := src.(interface{ allowNonFinite(bool) }); ok {
		s.allowNonFinite(o.AllowNonfinite)
	}
	r, err := newRun(m, src, out, o)
	if err = comm.ShareError(o.Ranks, err); err == nil {
		err = r.checkAgreement()
	}
	if err != nil {
		return nil, fault.Mark(fault.ErrInput, err)
	}
	owned, err := r.lockFiles()
	defer func() {
		for _, l := range owned {
			l.Release()
		}
	}()
	if err = r.shareError(err); err != nil {
		return nil, err
	}
	whole := false
	defer func() { out.closeFile(whole || r.hasCheckpoint) }()
	if err := r.openRun(ctx); err != nil {
		return r.makeReport(), err
	}
	for ; r.pass < len(r.passes); r.pass, r.token = r.pass+1, 0 {
		if r.passes[r.pass].needsExchange && !r.exchanged {
			if err := r.exchangeStates(); err != nil {
				return r.makeReport(), err
			}
		}
		err := r.runPass(ctx)
		if next := r.pass + 1; err != nil || next == len(r.passes) || r.passes[next].needsExchange {
			err = r.shareError(err)
		}
		if err != nil {
			return r.makeReport(), err
		}
		if p := &r.passes[r.pass]; p.count < 0 {
			p.count = r.token
			r.shape.N, r.shape.M, r.out.shape.N = r.token, r.token, r.token
		}
	}
	if err := r.finishOutput(); err != nil {
		return r.makeReport(), err
	}
	whole = true
	return r.makeReport(), nil
}

// lockFiles makes this process the owner of the output and the checkpoint. Rank 0 owns
// them for all ranks.
func (r *run) lockFiles() (owned []*lock.Lock, err error) {
	for _, path := range []string{r.out.path, r.options.Checkpoint} {
		if path == "" || r.options.Ranks.Rank() > 0 {
			continue
		}
		l, err := lock.LockFile(path)
		var held *lock.HeldError
		if errors.As(err, &held) {
			err = fault.Mark(fault.ErrInput, err)
		}
		if err != nil {
			return owned, err
		}
		owned = append(owned, l)
	}
	return owned, nil
}

// run is a call of Run.
type run struct {
	options      Options
	mechanism    attention.Mechanism
	src          Source
	out          *Output
	shape        Shape
	chunk        int
	flops        float64 // operations per key of a key head, or query of a query head
	passes       []pass
	binding      []comm.Field
	window       int
	plannedBytes int64

	state         attention.State
	pass          int    // current pass
	token         int64  // tokens of the pass in the state
	inputSum      uint32 // checksum of a pipe's tokens up to there
	exchanged     bool   // the ranks have exchanged their states
	hasCheckpoint bool   // there is a checkpoint

	resumed         int64
	started         time.Time
	lastSave        time.Time
	fillTime        atomic.Int64 // nanoseconds
	computeTime     time.Duration
	operations      float64
	nonFinite       int64
	checkpoints     int
	sentBytes       int64
	snapshotBuffers chan []byte // free memory for a snapshot
}

// planLength is the sequence length for choosing chunks. Bits must not depend on the
// number of tokens.
const planLength = 1 << 20

// newRun checks all arguments before the first token.
func newRun(m attention.Mechanism, src Source, out *Output, o Options) (*run, error) {
	s, t := src.Shape(), m.Traits()
	switch {
	case !t.Causal:
		return nil, fmt.Errorf("mechanism: %s has no state: %s", t.Name, t.NoCausal)
	case !t.Streaming:
		return nil, fmt.Errorf("mechanism: the state of %s grows with the tokens, a stream needs one of constant size", t.Name)
	case !o.Causal && src.IsSequential():
		return nil, fault.Fieldf[Options]("{Causal}: unmasked attention reads keys and then queries, and a pipe is read once")
	case !o.Causal && (t.CausalOnly || t.Banded || !t.Linear):
		return nil, fault.Fieldf[Options]("{Causal}: %s streams in causal calls alone", t.Name)
	case !o.Causal && src.HasDecay():
		return nil, fmt.Errorf("log_g: decay needs a causal call, whose queries have a place among the keys")
	case src.HasDecay() && !t.Decay:
		return nil, fmt.Errorf("log_g: %s takes no decay", t.Name)
	case o.Causal && s.N > s.M:
		return nil, fmt.Errorf("k: M is %d, fewer than the %d causal queries", s.M, s.N)
	case o.Window < 0:
		return nil, fault.Fieldf[Options]("{Window}: %d is negative", o.Window)
	case o.Memory < 0:
		return nil, fault.Fieldf[Options]("{Memory}: %d is negative", o.Memory)
	case o.CheckpointInterval < 0:
		return nil, fault.Fieldf[Options]("{CheckpointInterval}: %v is negative", o.CheckpointInterval)
	case !o.isAlone() && (src.IsSequential() || out.w != nil):
		return nil, fault.Fieldf[Options]("{Ranks}: a pipe cannot be divided among them")
	case o.Checkpoint != "" && out.w != nil:
		return nil, fault.Fieldf[Options]("{Checkpoint}: %s: what was written to a pipe cannot be taken up again", o.Checkpoint)
	case out.path != "" && isSamePath(o.Checkpoint, out.partialPath()):
		return nil, fault.Fieldf[Options]("{Checkpoint}: %s: is the unfinished output", o.Checkpoint)
	}
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	if o.CheckpointInterval == 0 {
		o.CheckpointInterval = defaultCheckpointInterval
	}
	r := &run{options: o, mechanism: m, src: src, out: out, shape: s, passes: planPasses(s, o.Causal), snapshotBuffers: make(chan []byte, 1)}
	if r.snapshotBuffers <- nil; !o.isAlone() {
		r.passes = dividePasses(s, o.Causal, o.Ranks.Rank(), o.Ranks.Size())
	}
	plan := m.Plan(attention.Shape{B: 1, H: s.H, Hkv: s.Hkv, N: planLength, M: planLength, D: s.D, Dv: s.Dv, Causal: o.Causal, Form: attention.Linear})
	r.chunk, r.flops = plan.Chunk, 2*float64(plan.F)*float64(s.Dv+1)
	if !o.Causal {
		r.chunk *= 2 // no query reads an open chunk pair by pair; longer chunks need fewer additions
	}
	shape := attention.Shape{B: s.B, H: s.H, Hkv: s.Hkv, D: s.D, Dv: s.Dv, Chunk: r.chunk, Carry: attention.Compensated}
	scratch := plan.Bytes * float64(min(par.Threads(), max(s.B*s.Hkv, 1)))
	// A state beyond the memory budget is never allocated.
	if err := r.chooseWindow(m.Plan(shape).State, scratch); err != nil {
		return nil, err
	}
	var err error
	if r.state, err = m.NewState(shape); err != nil {
		return nil, err
	}
	if err := r.chooseWindow(float64(r.state.Bytes()), scratch); err != nil {
		return nil, err
	}
	if err := out.bindShape(s); err != nil {
		return nil, err
	}
	r.binding = r.bindingFields()
	return r, nil
}

// isSamePath reports whether two names, of files that may be absent, are one path.
func isSamePath(a, b string) bool {
	first, errA := os.Stat(filepath.Dir(a))
	second, errB := os.Stat(filepath.Dir(b))
	return errA == nil && errB == nil && os.SameFile(first, second) && filepath.Base(a) == filepath.Base(b)
}

const (
	windowCount = 3       // one being read, one computed with, one written
	maxWindow   = 1 << 14 // tokens: longer ones gain nothing
	maxWork     = 1 << 36 // operations of a window of many chunks: an interrupt waits for one
)

// chooseWindow chooses the tokens of a window from the memory beside a state and the
// scratch memory of the mechanism, both in bytes.
func (r *run) chooseWindow(state, scratch float64) error {
	if r.options.Checkpoint != "" {
		state *= 3 // the snapshot, in a buffer that may have doubled
	}
	var numbers float64 // of a token; a token beyond the memory budget is never allocated
	for _, p := range r.passes {
		numbers = max(numbers, r.shape.countNumbers(p.role))
	}
	if least := state + scratch + windowCount*numbers*float64(elementSize()); least > float64(r.options.Memory) {
		return fault.Fieldf[Options]("{Memory}: %d bytes; the state and %d windows of one token take %.0f and more", r.options.Memory, windowCount, least)
	}
	var token int64
	for _, p := range r.passes {
		token = max(token, r.newWindow(1, p.role).memoryBytes())
	}
	fixed := int64(state) + int64(scratch)
	least := fixed + windowCount*token
	if least > r.options.Memory {
		return fault.Fieldf[Options]("{Memory}: %d bytes; the state and %d windows of one token take %d", r.options.Memory, windowCount, least)
	}
	n := min((r.options.Memory-fixed)/(windowCount*token), maxWindow)
	if work := r.flops * float64(r.shape.B*(r.shape.H+r.shape.Hkv)); work > 0 {
		n = min(n, int64(max(maxWork/work, float64(r.chunk), 1)))
	}
	if c := int64(r.chunk); c > 0 && n > c {
		n -= n % c
	}
	if r.options.Window > 0 {
		if n = int64(r.options.Window); n > (r.options.Memory-fixed)/(windowCount*token) {
			return fault.Fieldf[Options]("{Window}: %d tokens take %.0f bytes, {Memory} is %d", n, float64(fixed)+float64(windowCount*token)*float64(n), r.options.Memory)
		}
	}
	r.window, r.plannedBytes = int(n), fixed+windowCount*token*n
	return nil
}

// newWindow returns a window of the source with memory for outputs.
func (r *run) newWindow(n int, want Role) *Window {
	w := r.src.NewWindow(n, want)
	if want&Queries != 0 {
		w.out = r.out.newHeads(n, r.shape)
	}
	return w
}

// openRun opens the output and continues from a checkpoint if there is one. It returns the
// error of ctx if the input is interrupted while earlier tokens are skipped.
func (r *run) openRun(ctx context.Context) error {
	r.started = time.Now()
	r.lastSave = r.started
	switch {
	case r.options.Checkpoint == "":
		return r.openOutput()
	case !r.options.isAlone():
		return r.resumeRanks()
	case r.options.Restart:
		if err := r.discardCheckpoints(); err != nil {
			return err
		}
	}
	c, err := r.readOwnCheckpoint(r.options.Checkpoint)
	if err != nil {
		r.hasCheckpoint = true // the output stays after an error
		return fault.Mark(fault.ErrInput, err)
	}
	if c == nil {
		return r.out.createFile()
	}
	if err := r.resumeFrom(c); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fault.Mark(fault.ErrInput, fmt.Errorf("%s: %w", r.options.Checkpoint, err))
	}
	return nil
}

// resumeFrom continues from a checkpoint.
func (r *run) resumeFrom(c *streamfile.Checkpoint) (err error) {
	r.hasCheckpoint = true // the output stays after an error
	if err := checkRun(c, r.binding, r.passes); err != nil {
		return err
	}
	if err := r.restoreState(c); err != nil {
		return err
	}
	if err := r.resumeOutput(c); err != nil {
		return err
	}
	if s, ok := r.src.(Skipper); ok && !c.IsComplete {
		return s.Skip(r.token, c.Input)
	}
	if c.IsComplete && r.passes[r.pass].count < 0 {
		r.passes[r.pass].count = r.token
		r.shape.N, r.shape.M, r.out.shape.N = r.token, r.token, r.token
	}
	return nil
}

// restoreState restores the state and position of a checkpoint.
func (r *run) restoreState(c *streamfile.Checkpoint) error {
	state, err := r.mechanism.RestoreState(c.State)
	if err != nil {
		return err
	}
	r.state = state
	r.pass, r.token, r.inputSum, r.exchanged = c.Pass, c.Tokens, c.Input, c.IsExchanged
	r.resumed = r.doneTokens()
	return nil
}

// resumeOutput continues the output of a checkpoint.
func (r *run) resumeOutput(c *streamfile.Checkpoint) error {
	p := r.passes[r.pass]
	if p.role&Queries == 0 {
		return r.out.resumeFile(c, 0, 0)
	}
	return r.out.resumeFile(c, p.firstQuery, p.firstQuery+r.token)
}

// doneTokens returns the tokens done in all passes.
func (r *run) doneTokens() int64 {
	n := r.token
	for _, p := range r.passes[:r.pass] {
		n += p.count
	}
	return n
}

// totalTokens returns the tokens of all passes; -1 if unknown.
func (r *run) totalTokens() int64 {
	n := int64(0)
	for _, p := range r.passes {
		if p.count < 0 {
			return -1
		}
		n += p.count
	}
	return n
}

// newCheckpoint returns a checkpoint of the current state, in memory b.
func (r *run) newCheckpoint(b []byte) (*streamfile.Checkpoint, error) {
	r.lastSave = time.Now()
	b, err := r.state.AppendBinary(b[:0])
	if err != nil {
		return nil, err
	}
	return &streamfile.Checkpoint{Bound: r.binding, Rank: r.options.Ranks.Rank(), IsExchanged: r.exchanged, Pass: r.pass, Tokens: r.token, Input: r.inputSum, State: b}, nil
}

// saveCheckpoint writes a checkpoint after syncing the output rows that it counts.
func (r *run) saveCheckpoint(c *streamfile.Checkpoint) error {
	if err := r.out.syncFile(); err != nil {
		return err
	}
	c.Digests, c.RowDigests = r.out.digests, r.out.rowDigests
	if err := c.WriteFile(r.checkpointPath(c.IsExchanged)); err != nil {
		return err
	}
	r.hasCheckpoint = true
	r.checkpoints++
	return nil
}

// finishOutput gives the output its final name.
func (r *run) finishOutput() error {
	if r.options.Checkpoint != "" {
		r.pass, r.token = len(r.passes)-1, r.passes[len(r.passes)-1].count
		c, err := r.newCheckpoint(nil)
		if err != nil {
			return err
		}
		c.IsComplete = true
		if err := r.shareError(r.saveCheckpoint(c)); err != nil {
			return err
		}
	}
	if err := r.commitOutput(); err != nil {
		return err
	}
	if r.options.Checkpoint == "" {
		return nil
	}
	return r.removeCheckpoints()
}

// makeReport returns the report so far.
func (r *run) makeReport() *Report {
	pass := min(r.pass, len(r.passes)-1)
	tokens := int64(0)
	for i, p := range r.passes {
		switch {
		case i < pass:
			tokens += p.count
		case i == pass && r.pass < len(r.passes):
			tokens += r.token
		case i == pass:
			tokens += p.count
		}
	}
	rep := &Report{
		Shape: r.shape, Tokens: tokens, Resumed: r.resumed, Window: r.window, Chunk: r.chunk,
		StateBytes: r.state.Bytes(), Planned: r.plannedBytes, Seconds: time.Since(r.started).Seconds(),
		Filling: time.Duration(r.fillTime.Load()).Seconds(), Computing: r.computeTime.Seconds(), FLOPs: r.operations, Checkpoints: r.checkpoints,
		Sent: r.sentBytes, NonFinite: r.nonFinite,
	}
	if r.shape.N >= 0 {
		rep.Bound = r.mechanism.Plan(attention.Shape{
			B: r.shape.B, H: r.shape.H, Hkv: r.shape.Hkv, N: int(r.shape.N), M: int(r.shape.M), D: r.shape.D, Dv: r.shape.Dv,
			Causal: r.options.Causal, Form: attention.Step, Chunk: r.chunk, Carry: attention.Compensated,
		}).Bound
		rep.Digest = joinDigests(r.out.digests, r.shape.N*int64(r.shape.Dv)*elementSize())
	}
	return rep
}

// bindingFields returns the fields that a checkpoint of this run is bound to, beside the
// snapshot of the state.
func (r *run) bindingFields() []comm.Field {
	s := &r.shape
	field := func(name string, value any) comm.Field { return comm.Field{Name: name, Value: fmt.Sprint(value)} }
	list := []comm.Field{
		field("mechanism", r.mechanism.Traits().Name), field("setting", r.mechanism.Setting()), field("causal", r.options.Causal),
		field("bytes of an element", elementSize()), field("instruction set", kernel.Active[tensor.Float]().Name),
		field("B", s.B), field("H", s.H), field("Hkv", s.Hkv), field("N", s.N), field("M", s.M), field("D", s.D), field("Dv", s.Dv),
		field("chunk", r.chunk), field("output", r.out.formatName()), field("ranks", r.options.Ranks.Size()),
	}
	return append(list, r.src.Identity()...)
}
