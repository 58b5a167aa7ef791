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
	Checkpoint string
	Every      time.Duration // between checkpoints; 0: DefaultEvery
	Fresh      bool          // begin anew, whatever checkpoint there is

	// AllowNonfinite counts output rows that are not finite (Report.NonFinite), which are
	// an error otherwise.
	AllowNonfinite bool

	Progress func(Progress) // called after every window; may be nil

	// Ranks divide the tokens among them; nil: there are no others. All call Run with
	// the same input, output and name of a checkpoint, of which each has its own.
	Ranks *comm.Comm
}

const (
	DefaultMemory = 256 << 20
	DefaultEvery  = 30 * time.Second
)

// Progress tells how far a run is.
type Progress struct {
	Done, All int64 // tokens of all passes; All is -1 where nobody knows
	Before    int64 // of Done, tokens of runs before
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
	want            Want
	n, key0, query0 int64
	meets           bool // the ranks exchange their states before it
}

// passes returns the passes that a call takes.
func passes(s Shape, causal bool) []pass {
	switch {
	case !causal:
		return []pass{{want: Keys, n: s.M}, {want: Queries, n: s.N}}
	case s.M > s.N:
		return []pass{{want: Keys, n: s.M - s.N}, {want: Keys | Queries, n: s.N, key0: s.M - s.N}}
	}
	return []pass{{want: Keys | Queries, n: s.N}}
}

// Run computes attention of what src gives and writes it to out, which it closes.
// After an error, or the end of ctx, what the last checkpoint is of remains, and the
// same call continues. Run owns the files of output and checkpoint; if another run does,
// the error is a BadInput with a lock.HeldError.
func Run[T tensor.Float](ctx context.Context, m attention.Mechanism[T], src Source[T], out *Output[T], o Options) (*Report, error) {
	r, err := newRun(m, src, out, o)
	if err = comm.Together(o.Ranks, err); err == nil {
		err = r.agree()
	}
	if err != nil {
		return nil, &BadInput{err}
	}
	owned, err := r.own()
	defer func() {
		for _, l := range owned {
			l.Release()
		}
	}()
	if err = r.together(err); err != nil {
		return nil, err
	}
	whole := false
	defer func() { out.close(whole || r.kept) }()
	if err := r.begin(); err != nil {
		return nil, err
	}
	for ; r.pass < len(r.passes); r.pass, r.at = r.pass+1, 0 {
		if r.passes[r.pass].meets && !r.met {
			if err := r.meet(); err != nil {
				return r.report(), err
			}
		}
		err := r.through(ctx)
		if next := r.pass + 1; err != nil || next == len(r.passes) || r.passes[next].meets {
			err = r.together(err)
		}
		if err != nil {
			return r.report(), err
		}
		if p := &r.passes[r.pass]; p.n < 0 {
			p.n = r.at
			r.shape.N, r.shape.M = r.at, r.at
		}
	}
	if err := r.finish(); err != nil {
		return r.report(), err
	}
	whole = true
	return r.report(), nil
}

// own makes this process the owner of the output and the checkpoint. Rank 0 owns them
// for all ranks.
func (r *run[T]) own() (owned []*lock.Lock, err error) {
	for _, path := range []string{r.out.path, r.o.Checkpoint} {
		if path == "" || r.o.Ranks.Rank() > 0 {
			continue
		}
		l, err := lock.File(path)
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
	o       Options
	m       attention.Mechanism[T]
	src     Source[T]
	out     *Output[T]
	shape   Shape
	chunk   int
	flops   float64 // of a key head's key, or of a query head's query
	passes  []pass
	bound   []Field
	window  int
	planned int64

	state attention.State[T]
	pass  int    // that goes on
	at    int64  // tokens of it that the state has met
	input uint32 // checksum of a pipe's tokens up to there
	met   bool   // the ranks have exchanged their states
	kept  bool   // there is a checkpoint

	resumed     int64
	started     time.Time
	saved       time.Time
	filling     atomic.Int64 // nanoseconds
	computing   time.Duration
	operations  float64
	nonFinite   int64
	checkpoints int
	sent        int64
	room        chan []byte // memory for a snapshot, where none is being written
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
	case !o.Causal && src.Sequential():
		return nil, fmt.Errorf("causal: unmasked attention reads keys and then queries, and a pipe is read once")
	case !o.Causal && (t.CausalOnly || !t.Linear):
		return nil, fmt.Errorf("causal: %s streams in causal calls alone", t.Name)
	case !o.Causal && src.Decays():
		return nil, fmt.Errorf("log_g: decay needs a causal call, whose queries have a place among the keys")
	case src.Decays() && !t.Decay:
		return nil, fmt.Errorf("log_g: %s takes no decay", t.Name)
	case o.Causal && s.N > s.M:
		return nil, fmt.Errorf("k: M is %d, fewer than the %d causal queries", s.M, s.N)
	case o.Window < 0:
		return nil, fmt.Errorf("window: %d is negative", o.Window)
	case o.Memory < 0:
		return nil, fmt.Errorf("memory: %d is negative", o.Memory)
	case o.Every < 0:
		return nil, fmt.Errorf("every: %v is negative", o.Every)
	case !o.alone() && (src.Sequential() || out.w != nil):
		return nil, errors.New("ranks: a pipe cannot be divided among them")
	case o.Checkpoint != "" && out.w != nil:
		return nil, fmt.Errorf("checkpoint: %s: what was written to a pipe cannot be taken up again", o.Checkpoint)
	}
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	if o.Every == 0 {
		o.Every = DefaultEvery
	}
	r := &run[T]{o: o, m: m, src: src, out: out, shape: s, passes: passes(s, o.Causal), room: make(chan []byte, 1)}
	if r.room <- nil; !o.alone() {
		r.passes = divided(s, o.Causal, o.Ranks.Rank(), o.Ranks.Size())
	}
	plan := m.Plan(attention.Shape{B: 1, H: s.H, Hkv: s.Hkv, N: planLength, M: planLength, D: s.D, Dv: s.Dv, Causal: o.Causal, Form: attention.Linear})
	r.chunk, r.flops = plan.Chunk, 2*float64(plan.F)*float64(s.Dv+1)
	if !o.Causal {
		r.chunk *= 2 // nobody reads an open one pair by pair, and sums of longer ones are joined less often
	}
	shape := attention.Shape{B: s.B, H: s.H, Hkv: s.Hkv, D: s.D, Dv: s.Dv, Chunk: r.chunk, Carry: attention.Compensated}
	scratch := plan.Bytes * float64(min(par.Threads(), max(s.B*s.Hkv, 1)))
	// A state that the budget has no room for is never made.
	if err := r.budget(m.Plan(shape).State, scratch); err != nil {
		return nil, err
	}
	var err error
	if r.state, err = m.NewState(shape); err != nil {
		return nil, err
	}
	if err := r.budget(float64(r.state.Bytes()), scratch); err != nil {
		return nil, err
	}
	if err := out.bind(s); err != nil {
		return nil, err
	}
	r.bound = r.binding()
	return r, nil
}

const (
	windows   = 3       // one being read, one computed with, one written
	maxWindow = 1 << 14 // tokens: longer ones gain nothing
	maxWork   = 1 << 36 // operations of a window of many chunks: an interrupt waits for one
)

// budget chooses the tokens of a window by the memory that there is, beside a state
// of so many bytes and the scratch memory of the mechanism.
func (r *run[T]) budget(state, scratch float64) error {
	if r.o.Checkpoint != "" {
		state *= 3 // the snapshot, in memory that has grown
	}
	if state+scratch > float64(r.o.Memory) {
		return fmt.Errorf("memory: %d bytes; the state and %d windows of one token take %.0f and more", r.o.Memory, windows, state+scratch)
	}
	var token int64
	for _, p := range r.passes {
		token = max(token, r.newWindow(1, p.want).bytes())
	}
	fixed := int64(state) + int64(scratch)
	least := fixed + windows*token
	if least > r.o.Memory {
		return fmt.Errorf("memory: %d bytes; the state and %d windows of one token take %d", r.o.Memory, windows, least)
	}
	n := min((r.o.Memory-fixed)/(windows*token), maxWindow)
	if work := r.flops * float64(r.shape.B*(r.shape.H+r.shape.Hkv)); work > 0 {
		n = min(n, int64(max(maxWork/work, float64(r.chunk), 1)))
	}
	if c := int64(r.chunk); c > 0 && n > c {
		n -= n % c
	}
	if r.o.Window > 0 {
		if n = int64(r.o.Window); n > (r.o.Memory-fixed)/(windows*token) {
			return fmt.Errorf("window: %d tokens take %.0f bytes, memory is %d", n, float64(fixed)+float64(windows*token)*float64(n), r.o.Memory)
		}
	}
	r.window, r.planned = int(n), fixed+windows*token*n
	return nil
}

func (r *run[T]) newWindow(n int, want Want) *Window[T] {
	w := r.src.Room(n, want)
	if want&Queries != 0 {
		w.out = r.out.heads(n, r.shape)
	}
	return w
}

// begin opens the output and goes on from a checkpoint if there is one.
func (r *run[T]) begin() error {
	r.started = time.Now()
	r.saved = r.started
	switch {
	case r.o.Checkpoint == "":
		return r.open()
	case !r.o.alone():
		return r.rejoin()
	case r.o.Fresh:
		if err := r.forget(); err != nil {
			return err
		}
	}
	c, err := r.recall(r.o.Checkpoint)
	if err != nil {
		r.kept = true // whatever is wrong, the output stays
		return &BadInput{err}
	}
	if c == nil {
		return r.out.create()
	}
	if err := r.resume(c); err != nil {
		return &BadInput{fmt.Errorf("%s: %w", r.o.Checkpoint, err)}
	}
	return nil
}

// resume takes up what a checkpoint is of.
func (r *run[T]) resume(c *checkpoint) (err error) {
	r.kept = true // likewise
	if err := c.fits(r.bound, r.passes); err != nil {
		return err
	}
	if err := r.restore(c); err != nil {
		return err
	}
	if err := r.out.resume(r.rows(), c.Digests, c.Whole); err != nil {
		return err
	}
	if s, ok := r.src.(Skipper); ok && !c.Whole {
		return s.Skip(r.at, c.Input)
	}
	if c.Whole && r.passes[r.pass].n < 0 {
		r.passes[r.pass].n = r.at
		r.shape.N, r.shape.M = r.at, r.at
	}
	return nil
}

// restore goes to the moment of a checkpoint.
func (r *run[T]) restore(c *checkpoint) (err error) {
	if r.state, err = r.m.RestoreState(c.state); err != nil {
		return err
	}
	r.pass, r.at, r.input, r.met = c.Pass, c.At, c.Input, c.Met
	r.resumed = r.done()
	return nil
}

// rows counts those of the output that are written.
func (r *run[T]) rows() int64 {
	if r.passes[r.pass].want&Queries == 0 {
		return 0
	}
	return r.at
}

// done counts tokens of all passes.
func (r *run[T]) done() int64 {
	n := r.at
	for _, p := range r.passes[:r.pass] {
		n += p.n
	}
	return n
}

// all counts the tokens of all passes, -1 where nobody knows.
func (r *run[T]) all() int64 {
	n := int64(0)
	for _, p := range r.passes {
		if p.n < 0 {
			return -1
		}
		n += p.n
	}
	return n
}

// snapshot is a checkpoint of this moment, but for what is to be written before it.
func (r *run[T]) snapshot(b []byte) (*checkpoint, error) {
	r.saved = time.Now()
	b, err := r.state.AppendBinary(b[:0])
	if err != nil {
		return nil, err
	}
	return &checkpoint{Bound: r.bound, Rank: r.o.Ranks.Rank(), Met: r.met, Pass: r.pass, At: r.at, Input: r.input, state: b}, nil
}

// save writes a checkpoint behind the outputs that it is of.
func (r *run[T]) save(c *checkpoint) error {
	if err := r.out.sync(); err != nil {
		return err
	}
	c.Digests = r.out.digests
	if err := c.write(r.checkpoint(c.Met)); err != nil {
		return err
	}
	r.kept = true
	r.checkpoints++
	return nil
}

// finish gives the output its name.
func (r *run[T]) finish() error {
	if r.o.Checkpoint != "" {
		r.pass, r.at = len(r.passes)-1, r.passes[len(r.passes)-1].n
		c, err := r.snapshot(nil)
		if err != nil {
			return err
		}
		c.Whole = true
		if err := r.together(r.save(c)); err != nil {
			return err
		}
	}
	if err := r.commit(); err != nil {
		return err
	}
	if r.o.Checkpoint == "" {
		return nil
	}
	return r.forget()
}

func (r *run[T]) report() *Report {
	pass := min(r.pass, len(r.passes)-1)
	tokens := int64(0)
	for i, p := range r.passes {
		switch {
		case i < pass:
			tokens += p.n
		case i == pass && r.pass < len(r.passes):
			tokens += r.at
		case i == pass:
			tokens += p.n
		}
	}
	rep := &Report{
		Shape: r.shape, Tokens: tokens, Resumed: r.resumed, Window: r.window, Chunk: r.chunk,
		StateBytes: r.state.Bytes(), Planned: r.planned, Seconds: time.Since(r.started).Seconds(),
		Filling: time.Duration(r.filling.Load()).Seconds(), Computing: r.computing.Seconds(), FLOPs: r.operations, Checkpoints: r.checkpoints,
		Sent: r.sent, NonFinite: r.nonFinite,
	}
	if r.shape.N >= 0 {
		rep.Bound = r.m.Plan(attention.Shape{
			B: r.shape.B, H: r.shape.H, Hkv: r.shape.Hkv, N: int(r.shape.N), M: int(r.shape.M), D: r.shape.D, Dv: r.shape.Dv,
			Causal: r.o.Causal, Form: attention.Step, Chunk: r.chunk, Carry: attention.Compensated,
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

// binding is what a checkpoint of this run is bound to, beside what the snapshot of
// the state is.
func (r *run[T]) binding() []Field {
	s := &r.shape
	field := func(name string, value any) Field { return Field{name, fmt.Sprint(value)} }
	list := []Field{
		field("mechanism", r.m.Traits().Name), field("setting", r.m.Setting()), field("causal", r.o.Causal),
		field("bytes of an element", elementSize[T]()), field("instruction set", kernel.Active[T]().Name),
		field("B", s.B), field("H", s.H), field("Hkv", s.Hkv), field("N", s.N), field("M", s.M), field("D", s.D), field("Dv", s.Dv),
		field("chunk", r.chunk), field("output", r.out.format()), field("ranks", r.o.Ranks.Size()),
	}
	return append(list, r.src.Identity()...)
}
