package published

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/farfield-ml/farfield/model"
)

// Passes of at most shortRows rows are bound by reading weights. From their second on they
// read a packed copy, if it has at most packedElements elements.
const (
	shortRows      = 64
	packedElements = 1 << 28
)

// keptRows is the number of rows from which the memory of a pass is left to the garbage collector.
const keptRows = 1 << 12

// passPool lends models for passes that run at the same time.
type passPool struct {
	plan      *plan
	body      *model.Model // with the weights
	stretched *stretchedTable

	use    sync.RWMutex // gradients and changes of the packed weights exclude passes
	shares sync.Mutex
	free   []*model.Model

	shortPasses atomic.Int64
	isFrozen    atomic.Bool // weights are packed
	isLentOut   atomic.Bool // Model.Model returned the weights: they may change
}

// begin returns a model with memory of its own for a pass of b. end follows.
func (x *passPool) begin(b *model.Batch) *model.Model {
	if x.countRows(b) <= shortRows && x.shortPasses.Add(1) > 1 {
		x.freeze()
	}
	x.refill(b)
	x.use.RLock()
	return x.lend()
}

// end takes back the model of begin.
func (x *passPool) end(b *model.Batch, share *model.Model) {
	if x.countRows(b) <= keptRows {
		x.giveBack(share)
	}
	x.use.RUnlock()
}

// countRows returns the rows that a pass of b has.
func (x *passPool) countRows(b *model.Batch) int { return b.B * (x.plan.rowCount(b) + b.SourceN) }

// freeze packs the weights if no other pass runs and no caller may change them.
func (x *passPool) freeze() {
	if x.isFrozen.Load() || x.plan.config.Params() > packedElements || !x.use.TryLock() {
		return
	}
	defer x.use.Unlock()
	if x.isLentOut.Load() || x.isFrozen.Load() {
		return
	}
	x.isFrozen.Store(true)
	if x.body.FreezeBody(); x.plan.scores {
		x.body.Freeze()
	}
}

// refill interpolates the positions that b reads anew if they are stretched and a caller may
// have changed their table.
func (x *passPool) refill(b *model.Batch) {
	rows := x.stretched.rows
	if rows == 0 || !x.isLentOut.Load() || len(b.Positions) == 0 || int(slices.Max(b.Positions)) < rows {
		return
	}
	x.use.Lock()
	defer x.use.Unlock()
	x.stretched.fill(x.body)
}

// thaw drops the packed weights, before a caller may change the others.
func (x *passPool) thaw() {
	x.use.Lock()
	defer x.use.Unlock()
	x.isLentOut.Store(true)
	if x.isFrozen.Swap(false) {
		x.body.Thaw()
	}
}

// lend returns a model with memory of its own.
func (x *passPool) lend() *model.Model {
	x.shares.Lock()
	defer x.shares.Unlock()
	if n := len(x.free); n > 0 {
		share := x.free[n-1]
		x.free = x.free[:n-1]
		return share
	}
	return x.body.Share()
}

// giveBack takes back a model of lend.
func (x *passPool) giveBack(share *model.Model) {
	x.shares.Lock()
	defer x.shares.Unlock()
	x.free = append(x.free, share)
}
