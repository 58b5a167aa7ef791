package stream

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// Options says how a run goes. The zero value is unmasked, without checkpoints.
type Options struct {
	Causal bool  // query i sees keys j ≤ i + (M-N)
	Memory int64 // bytes for the state, its snapshot and windows; 0: DefaultMemory
	Window int   // tokens of a window; 0: as many as memory has room for, up to a bound

	// Checkpoint is the file that a run continues from; "": there is none.
	Checkpoint         string
	CheckpointInterval time.Duration // between checkpoints; 0: DefaultEvery
	Restart            bool          // begin anew, whatever checkpoint there is

	// AllowNonfinite counts output rows that are not finite (Report.NonFinite), which are
	// an error otherwise.
	AllowNonfinite bool

	Progress func(Progress) // called after every window; may be nil

	// Ranks divide the tokens among them; nil: there are no others. All call Run with
	// the same input, output and name of a checkpoint, of which each has its own.
	Ranks *comm.Comm
}

const (
	DefaultMemory             = 256 << 20
	DefaultCheckpointInterval = 30 * time.Second
)

// Progress tells how far a run is.
type Progress struct {
	Done, Total int64 // tokens of all passes; All is -1 where nobody knows
	Resumed     int64 // of Done, tokens of runs before
}

// Report is what a run was.
type Report struct {
	Shape       Shape
	Tokens      int64   // of all passes, those of runs before included
	Resumed     int64   // of them, tokens of runs before
	Window      int     // tokens of a window
	Chunk       int     // tokens of a chunk of the state; 0 where it has none
	StateBytes  int64   // of the state
	Planned     int64   // bytes for the state, its snapshot and windows
	Seconds     float64 // of this run
	Filling     float64 // seconds in which windows were read or made, beside the following unless they are made
	Computing   float64 // seconds in which the mechanism computed
	FLOPs       float64 // products of features and values in them, two operations each
	Checkpoints int     // written
	Sent        int64   // bytes to other ranks, of the state
	Bound       float64 // of the error, as attention.Plan.Bound; 0: it is not known
	NonFinite   int64   // rows of o in this run that are not finite
	Digest      uint32  // CRC-32C of o, [B,H,N,Dv] in C order, little-endian
}

// pass is one way through the tokens: n of them, which have keys from key0 on and
// queries from query0 on; n is -1 where nobody knows.
type pass struct {
	role                        Role
	count, firstKey, firstQuery int64
	needsExchange               bool // the ranks exchange their states before it
}

// planPasses returns the passes that a call takes.
func planPasses(s Shape, causal bool) []pass {
	switch {
	case !causal:
		return []pass{{role: Keys, count: s.M}, {role: Queries, count: s.N}}
	case s.M > s.N:
		return []pass{{role: Keys, count: s.M - s.N}, {role: Keys | Queries, count: s.N, firstKey: s.M - s.N}}
	}
	return []pass{{role: Keys | Queries, count: s.N}}
}

// Run computes attention of what src gives and writes it to out, which it closes.
// After an error, or the end of ctx, what the last checkpoint is of remains, and the
// same call continues. Run owns the files of output and checkpoint; if another run does,
// the error is a BadInput with a lock.HeldError.
func Run[T tensor.Float](ctx context.Context, m attention.Mechanism[T], src Source[T], out *Output[T], o Options) (*Report, error) {
	r, err := newRun(m, src, out, o)
	if err = comm.ShareError(o.Ranks, err); err == nil {
		err = r.checkAgreement()
	}
	if err != nil {
		return nil, &BadInput{err}
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
	if err := r.openRun(); err != nil {
		return nil, err
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
			r.shape.N, r.shape.M = r.token, r.token
		}
	}
	if err := r.finishOutput(); err != nil {
		return r.makeReport(), err
	}
	whole = true
	return r.makeReport(), nil
}

// lockFiles makes this process the owner of the output and the checkpoint. Rank 0 owns them
// for all ranks.
func (r *run[T]) lockFiles() (owned []*lock.Lock, err error) {
	for _, path := range []string{r.out.path, r.options.Checkpoint} {
		if path == "" || r.options.Ranks.Rank() > 0 {
			continue
		}
		l, err := lock.LockFile(path)
		var held *lock.HeldError
		if errors.As(err, &held) {
			err = &BadInput{err}
		}
		if err != nil {
			return owned, err
		}
		owned = append(owned, l)
	}
	return owned, nil
}

// run is a call of Run.
type run[T tensor.Float] struct {
	options      Options
	mechanism    attention.Mechanism[T]
	src          Source[T]
	out          *Output[T]
	shape        Shape
	chunk        int
	flops        float64 // of a key head's key, or of a query head's query
	passes       []pass
	binding      []Field
	window       int
	plannedBytes int64

	state         attention.State[T]
	pass          int    // that goes on
	token         int64  // tokens of it that the state has met
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
	snapshotBuffers chan []byte // memory for a snapshot, where none is being written
}

// planLength is the length of the sequences that chunks are chosen for: no bit may
// depend on how many tokens there are.
const planLength = 1 << 20

// newRun checks all that can be checked before the first token.
func newRun[T tensor.Float](m attention.Mechanism[T], src Source[T], out *Output[T], o Options) (*run[T], error) {
	s, t := src.Shape(), m.Traits()
	switch {
	case !t.Causal:
		return nil, fmt.Errorf("mechanism: %s has no state: %s", t.Name, t.NoCausal)
	case !t.Streaming:
		return nil, fmt.Errorf("mechanism: the state of %s grows with the tokens, a stream needs one of constant size", t.Name)
	case !o.Causal && src.IsSequential():
		return nil, fmt.Errorf("causal: unmasked attention reads keys and then queries, and a pipe is read once")
	case !o.Causal && (t.CausalOnly || !t.Linear):
		return nil, fmt.Errorf("causal: %s streams in causal calls alone", t.Name)
	case !o.Causal && src.HasDecay():
		return nil, fmt.Errorf("log_g: decay needs a causal call, whose queries have a place among the keys")
	case src.HasDecay() && !t.Decay:
		return nil, fmt.Errorf("log_g: %s takes no decay", t.Name)
	case o.Causal && s.N > s.M:
		return nil, fmt.Errorf("k: M is %d, fewer than the %d causal queries", s.M, s.N)
	case o.Window < 0:
		return nil, fmt.Errorf("window: %d is negative", o.Window)
	case o.Memory < 0:
		return nil, fmt.Errorf("memory: %d is negative", o.Memory)
	case o.CheckpointInterval < 0:
		return nil, fmt.Errorf("every: %v is negative", o.CheckpointInterval)
	case !o.isAlone() && (src.IsSequential() || out.w != nil):
		return nil, errors.New("ranks: a pipe cannot be divided among them")
	case o.Checkpoint != "" && out.w != nil:
		return nil, fmt.Errorf("checkpoint: %s: what was written to a pipe cannot be taken up again", o.Checkpoint)
	}
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	if o.CheckpointInterval == 0 {
		o.CheckpointInterval = DefaultCheckpointInterval
	}
	r := &run[T]{options: o, mechanism: m, src: src, out: out, shape: s, passes: planPasses(s, o.Causal), snapshotBuffers: make(chan []byte, 1)}
	if r.snapshotBuffers <- nil; !o.isAlone() {
		r.passes = dividePasses(s, o.Causal, o.Ranks.Rank(), o.Ranks.Size())
	}
	plan := m.Plan(attention.Shape{B: 1, H: s.H, Hkv: s.Hkv, N: planLength, M: planLength, D: s.D, Dv: s.Dv, Causal: o.Causal, Form: attention.Linear})
	r.chunk, r.flops = plan.Chunk, 2*float64(plan.F)*float64(s.Dv+1)
	if !o.Causal {
		r.chunk *= 2 // nobody reads an open one pair by pair, and sums of longer ones are joined less often
	}
	shape := attention.Shape{B: s.B, H: s.H, Hkv: s.Hkv, D: s.D, Dv: s.Dv, Chunk: r.chunk, Carry: attention.Compensated}
	scratch := plan.Bytes * float64(min(par.Threads(), max(s.B*s.Hkv, 1)))
	// A state that the budget has no room for is never made.
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

const (
	windowCount = 3       // one being read, one computed with, one written
	maxWindow   = 1 << 14 // tokens: longer ones gain nothing
	maxWork     = 1 << 36 // operations of a window of many chunks: an interrupt waits for one
)

// chooseWindow chooses the tokens of a window by the memory that there is, beside a state
// of so many bytes and the scratch memory of the mechanism.
func (r *run[T]) chooseWindow(state, scratch float64) error {
	if r.options.Checkpoint != "" {
		state *= 3 // the snapshot, in memory that has grown
	}
	if state+scratch > float64(r.options.Memory) {
		return fmt.Errorf("memory: %d bytes; the state and %d windows of one token take %.0f and more", r.options.Memory, windowCount, state+scratch)
	}
	var token int64
	for _, p := range r.passes {
		token = max(token, r.newWindow(1, p.role).memoryBytes())
	}
	fixed := int64(state) + int64(scratch)
	least := fixed + windowCount*token
	if least > r.options.Memory {
		return fmt.Errorf("memory: %d bytes; the state and %d windows of one token take %d", r.options.Memory, windowCount, least)
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
			return fmt.Errorf("window: %d tokens take %.0f bytes, memory is %d", n, float64(fixed)+float64(windowCount*token)*float64(n), r.options.Memory)
		}
	}
	r.window, r.plannedBytes = int(n), fixed+windowCount*token*n
	return nil
}

func (r *run[T]) newWindow(n int, want Role) *Window[T] {
	w := r.src.NewWindow(n, want)
	if want&Queries != 0 {
		w.out = r.out.newHeads(n, r.shape)
	}
	return w
}

// openRun opens the output and goes on from a checkpoint if there is one.
func (r *run[T]) openRun() error {
	r.started = time.Now()
	r.lastSave = r.started
	switch {
	case r.options.Checkpoint == "":
		return r.openOutput()
	case !r.options.isAlone():
		return r.resumeRanks()
	case r.options.Restart:
		if err := r.removeCheckpoints(); err != nil {
			return err
		}
	}
	c, err := r.readOwnCheckpoint(r.options.Checkpoint)
	if err != nil {
		r.hasCheckpoint = true // whatever is wrong, the output stays
		return &BadInput{err}
	}
	if c == nil {
		return r.out.createFile()
	}
	if err := r.resumeFrom(c); err != nil {
		return &BadInput{fmt.Errorf("%s: %w", r.options.Checkpoint, err)}
	}
	return nil
}

// resumeFrom takes up what a checkpoint is of.
func (r *run[T]) resumeFrom(c *checkpoint) (err error) {
	r.hasCheckpoint = true // likewise
	if err := c.checkRun(r.binding, r.passes); err != nil {
		return err
	}
	if err := r.restoreState(c); err != nil {
		return err
	}
	if err := r.out.resumeFile(r.writtenRows(), c.Digests, c.Whole); err != nil {
		return err
	}
	if s, ok := r.src.(Skipper); ok && !c.Whole {
		return s.Skip(r.token, c.Input)
	}
	if c.Whole && r.passes[r.pass].count < 0 {
		r.passes[r.pass].count = r.token
		r.shape.N, r.shape.M = r.token, r.token
	}
	return nil
}

// restoreState goes to the moment of a checkpoint.
func (r *run[T]) restoreState(c *checkpoint) (err error) {
	if r.state, err = r.mechanism.RestoreState(c.state); err != nil {
		return err
	}
	r.pass, r.token, r.inputSum, r.exchanged = c.Pass, c.At, c.Input, c.Met
	r.resumed = r.doneTokens()
	return nil
}

// writtenRows counts those of the output that are written.
func (r *run[T]) writtenRows() int64 {
	if r.passes[r.pass].role&Queries == 0 {
		return 0
	}
	return r.token
}

// doneTokens counts tokens of all passes.
func (r *run[T]) doneTokens() int64 {
	n := r.token
	for _, p := range r.passes[:r.pass] {
		n += p.count
	}
	return n
}

// totalTokens counts the tokens of all passes, -1 where nobody knows.
func (r *run[T]) totalTokens() int64 {
	n := int64(0)
	for _, p := range r.passes {
		if p.count < 0 {
			return -1
		}
		n += p.count
	}
	return n
}

// newCheckpoint is a checkpoint of this moment, but for what is to be written before it.
func (r *run[T]) newCheckpoint(b []byte) (*checkpoint, error) {
	r.lastSave = time.Now()
	b, err := r.state.AppendBinary(b[:0])
	if err != nil {
		return nil, err
	}
	return &checkpoint{Bound: r.binding, Rank: r.options.Ranks.Rank(), Met: r.exchanged, Pass: r.pass, At: r.token, Input: r.inputSum, state: b}, nil
}

// saveCheckpoint writes a checkpoint behind the outputs that it is of.
func (r *run[T]) saveCheckpoint(c *checkpoint) error {
	if err := r.out.syncFile(); err != nil {
		return err
	}
	c.Digests = r.out.digests
	if err := c.writeFile(r.checkpointPath(c.Met)); err != nil {
		return err
	}
	r.hasCheckpoint = true
	r.checkpoints++
	return nil
}

// finishOutput gives the output its name.
func (r *run[T]) finishOutput() error {
	if r.options.Checkpoint != "" {
		r.pass, r.token = len(r.passes)-1, r.passes[len(r.passes)-1].count
		c, err := r.newCheckpoint(nil)
		if err != nil {
			return err
		}
		c.Whole = true
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

func (r *run[T]) makeReport() *Report {
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
		rep.Digest = joinDigests(r.out.digests, r.shape.N*int64(r.shape.Dv)*elementSize[T]())
	}
	return rep
}

// BadInput is an error in what a run is given: its numbers, shapes and options, or a
// checkpoint of something else.
type BadInput struct{ Err error }

func (e *BadInput) Error() string { return e.Err.Error() }
func (e *BadInput) Unwrap() error { return e.Err }

// IsBadInput reports whether err is about what a run is given, rather than about
// reaching or keeping it.
func IsBadInput(err error) bool {
	var bad *BadInput
	return errors.As(err, &bad)
}

// bindingFields is what a checkpoint of this run is bound to, beside what the snapshot of
// the state is.
func (r *run[T]) bindingFields() []Field {
	s := &r.shape
	field := func(name string, value any) Field { return Field{name, fmt.Sprint(value)} }
	list := []Field{
		field("mechanism", r.mechanism.Traits().Name), field("setting", r.mechanism.Setting()), field("causal", r.options.Causal),
		field("bytes of an element", elementSize[T]()), field("instruction set", kernel.Active[T]().Name),
		field("B", s.B), field("H", s.H), field("Hkv", s.Hkv), field("N", s.N), field("M", s.M), field("D", s.D), field("Dv", s.Dv),
		field("chunk", r.chunk), field("output", r.out.formatName()), field("ranks", r.options.Ranks.Size()),
	}
	return append(list, r.src.Identity()...)
}
