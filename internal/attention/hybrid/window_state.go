package hybrid

import (
	"slices"
	"unsafe"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/engine"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/attention/rowscale"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/internal/snapshot"
	"github.com/farfield-ml/farfield/internal/states"
	"github.com/farfield-ml/farfield/tensor"
)

// hybridState is the state of a mechanism with a window: the state of the tail, and
// the last Width tokens of each key head. With one denominator a token enters
// the tail when it leaves the window, with the rows that it had when it came.
type hybridState struct {
	w      *hybrid
	shape  attention.Shape
	tokens int64
	tail   *engine.RecurrentState
	units  []*headtask.Task // of the window, [B·Hkv]
	rings  []ring           // [B·Hkv]
	joints []joinTask       // [B·Hkv] what a call works in
	bytes  int64            // of the windows without decay: each step asks for Bytes
}

// ring is the last n ≤ Width tokens of a key head. They lie one after another in
// memory for twice as many, and move to its front when its end is reached.
type ring struct {
	recentTokens
	start, n int
}

// recentTokens holds tokens of a key head: their prepared rows for both parts, their values,
// and their mask.
type recentTokens struct {
	tailRows, windowRows, v []float // [room, da], [room, D], [room, kernel.Pad(Dv)]; far is nil where the tail has seen the tokens
	exist                   []bool
	rates                   []float // [room] log_g; nil: no decay
}

// room returns memory for n tokens of a head of shape s, from take.
func (w *hybrid) room(s *attention.Shape, n int, decay bool, take func(n int) []float, exist []bool) recentTokens {
	x := recentTokens{windowRows: take(n * s.D), v: take(n * kernel.Pad(s.Dv)), exist: exist}
	if w.oneDenominator() {
		x.tailRows = take(n * w.tail.Spec.Width(s.D))
	}
	if decay {
		x.rates = take(n)
	}
	return x
}

// buffers returns the numbers of the tokens, in the order of a snapshot; da is the width of rows
// of the tail.
func (x *recentTokens) buffers(s *attention.Shape, da int) [4]states.Buffer {
	return [...]states.Buffer{
		{Data: x.tailRows, Count: da, Stride: da},
		{Data: x.windowRows, Count: s.D, Stride: s.D},
		{Data: x.v, Count: s.Dv, Stride: kernel.Pad(s.Dv)},
		{Data: x.rates, Count: 1, Stride: 1},
	}
}

// copy copies n tokens of from, from its token j on, to token i on.
func (x *recentTokens) copy(w *hybrid, s *attention.Shape, i int, from *recentTokens, j, n int) {
	da := w.tail.Spec.Width(s.D)
	to, of := x.buffers(s, da), from.buffers(s, da)
	for k := range to {
		to[k].Copy(i, &of[k], j, n)
	}
	copy(x.exist[i:], from.exist[j:][:n])
}

// slice views the tokens from i on.
func (x recentTokens) slice(w *hybrid, s *attention.Shape, i int) recentTokens {
	if x.tailRows != nil {
		x.tailRows = x.tailRows[i*w.tail.Spec.Width(s.D):]
	}
	x.windowRows, x.v, x.exist = x.windowRows[i*s.D:], x.v[i*kernel.Pad(s.Dv):], x.exist[i:]
	if x.rates != nil {
		x.rates = x.rates[i:]
	}
	return x
}

func (w *hybrid) NewState(s attention.Shape) (attention.State, error) {
	tail, err := w.tail.NewState(s)
	if err != nil {
		return nil, err
	}
	if err := w.checkHeads(s.H); err != nil {
		return nil, err
	}
	if err := s.CheckStateSize(w.tail.StateBytes(s) + w.ringBytes(s)); err != nil {
		return nil, err
	}
	return w.newState(tail.(*engine.RecurrentState)), nil
}

// ringBytes is what the windows of a state of shape s take, in bytes.
func (w *hybrid) ringBytes(s attention.Shape) float64 {
	room := 2 * float64(w.window.Width)
	row := float64(s.D) + float64(kernel.Pad(s.Dv))
	if w.oneDenominator() {
		row += float64(w.tail.Spec.Width(s.D))
	}
	return float64(s.B) * float64(s.Hkv) * room * (row*float64(scratch.ElementSize[float]()) + 1)
}

// newState returns a state around a tail without tokens.
func (w *hybrid) newState(tail *engine.RecurrentState) *hybridState {
	st := &hybridState{w: w, shape: tail.Shape, tail: tail}
	s := &st.shape
	take := func(n int) []float { return make([]float, n) }
	for range s.B * s.Hkv {
		u := w.windowEngine.StateUnit(s)
		u.Causal = true
		st.units = append(st.units, u)
		st.joints = append(st.joints, joinTask{windowTask: u})
		room := 2 * w.window.Width
		st.rings = append(st.rings, ring{recentTokens: w.room(s, room, false, take, make([]bool, room))})
	}
	st.bytes = states.Bytes(st) - tail.Bytes()
	return st
}

func (s *hybridState) Absorb(c *attention.Call) error { return attention.CheckedAbsorb(c, s) }

func (s *hybridState) Read(out tensor.Heads, c *attention.Call) error {
	return attention.CheckedRead(out, c, s)
}

func (s *hybridState) Step(out tensor.Heads, c *attention.Call) error {
	return attention.CheckedStep(out, c, s)
}

func (s *hybridState) StateShape() *attention.Shape { return &s.shape }

func (s *hybridState) Refuse(*attention.Call) error { return nil }

// Run absorbs m tokens and sets the outputs of n queries, in every head. If there are both,
// query i sees the tokens up to token i; without tokens, queries see all absorbed tokens.
func (s *hybridState) Run(out tensor.Heads, c *attention.Call, n, m int) {
	sh := &s.shape
	if c.HasDecay() {
		s.startAges()
	}
	if !s.w.oneDenominator() {
		s.tail.Run(out, c, n, m)
	}
	_, work := s.w.tail.CountOperations(n, m, 0, sh.D, sh.Dv, true, sh.Chunk)
	work += 4 * float64(n) * float64(s.w.window.Width) * float64(sh.D+sh.Dv)
	work *= float64(sh.B * sh.H)
	threads := headtask.CountWorkers(len(s.rings), work, work)
	for i, st := range s.tail.Heads {
		st.Task.Workers, s.units[i].Workers = 1, 1
		if max(n, m) > 1 {
			st.Task.Workers, s.units[i].Workers = threads, threads
		}
	}
	if work < par.MinWork {
		// Without a function value, so that a token allocates nothing.
		for i := range s.rings {
			s.head(i, out, c, n, m)
		}
	} else {
		par.RunEach(len(s.rings), work, func(i int) { s.head(i, out, c, n, m) })
	}
	s.tokens += int64(m)
	if s.w.oneDenominator() {
		s.tail.TokenCount = max(s.tokens-int64(s.w.window.Width), 0)
	}
}

// head is run for key head i.
func (s *hybridState) head(i int, out tensor.Heads, c *attention.Call, n, m int) {
	ar := arena.Acquire()
	defer ar.Release()
	w, sh, r, st := s.w, &s.shape, &s.rings[i], s.tail.Heads[i]
	near, far := s.units[i], st.Task
	engine.BindState(near, ar, sh, i, out, c, n, m)
	defer engine.UnbindState(near)
	if w.oneDenominator() {
		engine.BindState(far, ar, sh, i, out, c, n, m)
		defer engine.UnbindState(far)
	}
	x, end := r.open(w, sh, ar, m), r.n+m
	w.enter(near, far, sh, &x, r.n, m)
	w.seeAll(near, sh, &x, end)
	near.Offset = r.n
	if m == 0 {
		near.Offset = end // queries come after all tokens
	}
	j := &s.joints[i]
	j.o, j.tail = append(j.o[:0], near.O...), append(j.tail[:0], far.Den...)
	if w.oneDenominator() {
		var behind float64
		if st.Decays != nil {
			behind = st.Decays.Pending
		}
		j.ages = near.BandAges(behind)
		w.seeLeft(far, sh, &x, end)
		if m > 0 {
			far.Skip(w.window.Width - r.n)
		}
		st.Run()
		far.HasPreparedKeys, far.FirstPosition = false, 0
	}
	if n > 0 {
		w.answer(j, i%sh.Hkv)
	}
	near.HasPreparedKeys, j.ages = false, headtask.BandAges{}
	clear(j.o)
	clear(j.tail)
	r.close(w, sh, &x, end)
}

// open returns the ring's tokens followed by room for m more. It uses the ring's own memory if
// that is large enough, otherwise scratch memory.
func (r *ring) open(w *hybrid, s *attention.Shape, ar *arena.Arena, m int) recentTokens {
	room := len(r.exist)
	if r.n+m > room {
		take := func(n int) []float { return arena.Take[float](ar, n) }
		x := w.room(s, r.n+m, r.rates != nil, take, make([]bool, r.n+m))
		x.copy(w, s, 0, &r.recentTokens, r.start, r.n)
		return x
	}
	if r.start+r.n+m > room {
		r.recentTokens.copy(w, s, 0, &r.recentTokens, r.start, r.n)
		r.start = 0
	}
	return r.slice(w, s, r.start)
}

// close keeps the last of end tokens, which open gave.
func (r *ring) close(w *hybrid, s *attention.Shape, x *recentTokens, end int) {
	n := min(end, w.window.Width)
	if end > len(r.exist) {
		r.recentTokens.copy(w, s, 0, x, end-n, n)
		r.start = 0
	} else {
		r.start += end - n
	}
	r.n = n
}

// enter stores the m keys of both tasks after the first n tokens of x.
func (w *hybrid) enter(near, far *headtask.Task, s *attention.Shape, x *recentTokens, n, m int) {
	if m == 0 {
		return
	}
	to := x.slice(w, s, n)
	near.PrepareK(to.windowRows, s.D, 0, m)
	near.CopyValues(to.v, kernel.Pad(s.Dv), 0, m)
	if to.tailRows != nil {
		far.PrepareK(to.tailRows, far.PreparedWidth, 0, m)
	}
	for j := range m {
		to.exist[j] = near.HasKey(j)
	}
	for j := 0; j < m && to.rates != nil; j++ {
		to.rates[j] = float(near.LogDecay(j))
	}
}

// see has the keys of a task be n tokens, whose prepared rows of width da are
// given.
func (x *recentTokens) see(u *headtask.Task, rows []float, da, n int) {
	mat := func(data []float, cols, stride int) tensor.Mat {
		return tensor.Mat{Data: data, Rows: n, Cols: cols, Stride: stride}
	}
	u.K, u.V, u.M, u.HasPreparedKeys = mat(rows, da, da), mat(x.v, u.Dv, kernel.Pad(u.Dv)), n, true
	u.Mask, u.LogG = nil, tensor.Mat{}
	if slices.Contains(x.exist[:n], false) {
		u.Mask = x.exist[:n]
	}
	if x.rates != nil {
		u.LogG = mat(x.rates, 1, 1)
	}
}

// seeAll has the task of the window see end tokens of x.
func (w *hybrid) seeAll(near *headtask.Task, s *attention.Shape, x *recentTokens, end int) {
	x.see(near, x.windowRows, s.D, end)
}

// seeLeft has the task of the tail see the tokens of x that have left the window
// after end tokens.
func (w *hybrid) seeLeft(far *headtask.Task, s *attention.Shape, x *recentTokens, end int) {
	x.see(far, x.tailRows, far.PreparedWidth, max(end-w.window.Width, 0))
}

// answer sets the outputs of j, whose tail is done, of the heads that share key
// head kh.
func (w *hybrid) answer(j *joinTask, kh int) {
	near := j.windowTask
	near.Sums = near.Sums[:0]
	for g := range near.O {
		near.Sums = append(near.Sums, rowscale.TakeSums(near.Arena, near.N))
		near.O[g] = tensor.Mat{Data: near.TakeScratch(near.N * near.Dv), Rows: near.N, Cols: near.Dv, Stride: near.Dv}
	}
	near.BandForward()
	for g := range near.Q {
		if h := kh*len(near.Q) + g; w.oneDenominator() {
			w.joinRows(j, g, h)
		} else {
			w.addRows(j.o[g], near.O[g], h)
		}
	}
}

// startAges has the state count ages from now on.
func (s *hybridState) startAges() {
	s.tail.StartAges()
	for i := range s.rings {
		if r := &s.rings[i]; r.rates == nil {
			r.rates = make([]float, len(r.exist))
		}
	}
}

// HasDecay reports whether the state has absorbed a decay.
func (s *hybridState) HasDecay() bool { return s.tail.HasDecay() }

func (s *hybridState) Clone() attention.State {
	return states.Copy(s.w.newState(engine.NewRecurrentState(s.w.tail, s.shape)), s)
}

func (s *hybridState) Reset() {
	s.tokens = 0
	s.tail.Reset()
	for i := range s.rings {
		r := &s.rings[i]
		r.start, r.n, r.rates = 0, 0, nil
	}
}

func (s *hybridState) Tokens() int64 { return s.tokens }

func (s *hybridState) Bytes() int64 {
	n := s.tail.Bytes() + s.bytes
	for i := range s.rings {
		rates := states.Buffer{Data: s.rings[i].rates}
		n += rates.Bytes()
	}
	return n
}

// HeapBytes returns the memory held, including tasks and the rounding of allocations.
func (s *hybridState) HeapBytes() int64 {
	n := s.tail.HeapBytes() + int64(unsafe.Sizeof(*s))
	for i := range s.rings {
		r := &s.rings[i]
		for _, b := range r.buffers(&s.shape, 0) {
			n += scratch.AllocatedBytes(b.Bytes())
		}
		j := &s.joints[i]
		n += int64(len(r.exist)) + int64(unsafe.Sizeof(*r)+unsafe.Sizeof(*j)) + s.units[i].Bytes()
		n += int64(uintptr(cap(j.o))*unsafe.Sizeof(tensor.Mat{}) + uintptr(cap(j.tail))*unsafe.Sizeof(r.v))
	}
	return n
}

// Merge appends the tokens of next. It moves the tokens of s that leave the window into the
// tail, and then adds the tail of next.
func (s *hybridState) Merge(next attention.State) error {
	return states.Merge(s, next, func(n *hybridState) error {
		if n.HasDecay() || s.HasDecay() {
			s.startAges()
		}
		ar := arena.Acquire()
		defer ar.Release()
		w, sh := s.w, &s.shape
		if !w.oneDenominator() {
			if err := s.tail.Merge(n.tail); err != nil {
				return err
			}
		}
		for i := range s.rings {
			r, from, st := &s.rings[i], &n.rings[i], s.tail.Heads[i]
			x, end := r.open(w, sh, ar, from.n), r.n+from.n
			x.copy(w, sh, r.n, &from.recentTokens, from.start, from.n)
			if w.oneDenominator() {
				st.Task.Arena, st.Task.N, st.Task.Workers = ar, 0, 1
				w.seeLeft(st.Task, sh, &x, end)
				st.Run()
				st.Task.HasPreparedKeys = false
				// A tail that holds nothing leaves the open chunk as it is.
				if tail := n.tail.Heads[i]; tail.Moments.NonEmpty || tail.Count > 0 {
					st.MergeNext(tail)
				}
				st.Task.Arena = nil
			}
			r.close(w, sh, &x, end)
		}
		s.tokens += n.tokens
		return nil
	})
}

const windowSumsKind = states.SumsKind + " and a window"

// Identity returns the kind, name and settings by which a state of the mechanism is recognised.
func (w *hybrid) Identity() states.Identity {
	return states.Identity{Kind: windowSumsKind, Name: w.tail.Spec.Name, Setting: w.tail.Spec.Setting}
}

// ParameterSum returns the checksum of the parameters of the tail and the window.
func (w *hybrid) ParameterSum() snapshot.ParameterSum {
	sum := w.tail.ParameterSum()
	if g := w.window.LogGamma; g != nil {
		sum = snapshot.AddParameters(sum, g.Data)
	}
	return sum
}

func (s *hybridState) Owner() states.Owner { return s.w }

// AppendBinary appends a snapshot. Its size does not depend on the number of tokens absorbed.
func (s *hybridState) AppendBinary(b []byte) ([]byte, error) { return states.AppendBinary(b, s) }

// Visit lists the content of the tail's state. Then follow, for each key head, the number of
// tokens in its window and the mask [Width], and, oldest token first, the prepared rows of the
// tail [Width, da] if there is one denominator, the rows of the window [Width, D], the values
// [Width, Dv] and, with decay, log_g [Width]. Missing tokens are zeros in a snapshot.
func (s *hybridState) Visit(p *states.Pass) {
	s.tail.Visit(p)
	width := s.w.window.Width
	if p.SetsState() {
		s.tokens = p.Tokens
		if s.w.oneDenominator() {
			s.tail.TokenCount = max(s.tokens-int64(width), 0)
		}
	}
	for i := range s.rings {
		if p.HasFailed() {
			return
		}
		r := &s.rings[i]
		n := p.Int(r.n)
		if p.SetsState() {
			if s.checkRing(p, i, n); p.HasFailed() {
				return
			}
			r.start, r.n, r.rates = 0, n, nil
			if p.Decay {
				r.rates = make([]float, len(r.exist))
			}
		}
		p.Flags(r.exist, r.start, n, width-n)
		buffers := r.buffers(&s.shape, s.w.tail.Spec.Width(s.shape.D))
		p.Buffers(r.start, n, width-n, buffers[:]...)
	}
}

// checkRing fails p if the window of key head i cannot have n tokens.
func (s *hybridState) checkRing(p *states.Pass, i, n int) {
	width, sums := s.w.window.Width, s.tail.Heads[i]
	switch {
	case n < 0 || n > width || int64(n) > p.Tokens:
		p.Fail("head %d has %d keys in its window: it is %d wide, the state has %d tokens", i, n, width, p.Tokens)
	case s.w.oneDenominator() && n < width && (sums.Moments.NonEmpty || sums.Count > 0):
		p.Fail("head %d has %d keys in a window of %d, and some that have left it", i, n, width)
	}
}

func (w *hybrid) RestoreState(data []byte) (attention.State, error) {
	return states.Restore(data, w, func(s attention.Shape, _ int64, r *snapshot.Reader) (states.Visited, error) {
		if err := w.tail.CheckHeads(s.H, s.Hkv, s.D); err != nil {
			return nil, err
		}
		if err := w.checkHeads(s.H); err != nil {
			return nil, err
		}
		elements := s.D + s.Dv
		if w.oneDenominator() {
			elements += w.tail.Spec.Width(s.D)
		}
		if r.Decay {
			elements++
		}
		heads := float64(s.B) * float64(s.Hkv)
		if err := r.Need(heads * (8 + float64(w.window.Width)*(1+float64(elements)*float64(scratch.ElementSize[float]())))); err != nil {
			return nil, err
		}
		tail, err := w.tail.NewStateFor(s, r)
		if err != nil {
			return nil, err
		}
		return w.newState(tail), nil
	})
}
