package pretrained

import "github.com/farfield-ml/farfield/model"

// Passes of at most shortRows rows are bound by reading weights. From their second on they
// read a packed copy, if it has at most packedElements elements.
const (
	shortRows      = 64
	packedElements = 1 << 28
)

// beginPass returns a model with memory of its own for a pass of b. endPass follows.
func (m *Model) beginPass(b *model.Batch) *model.Model[float32] {
	if b.B*(m.rowCount(b)+b.SourceN) <= shortRows && m.shortPasses.Add(1) > 1 {
		m.freeze()
	}
	m.use.RLock()
	return m.lend()
}

// endPass takes back the model of beginPass.
func (m *Model) endPass(share *model.Model[float32]) {
	m.giveBack(share)
	m.use.RUnlock()
}

// freeze packs the weights if no other pass runs and no caller may change them.
func (m *Model) freeze() {
	if m.isFrozen.Load() || m.plan.config.Params() > packedElements || !m.use.TryLock() {
		return
	}
	defer m.use.Unlock()
	if m.isLentOut || m.isFrozen.Load() {
		return
	}
	m.isFrozen.Store(true)
	m.free = nil // their heads have no packed weights
	if m.body.FreezeBody(); m.plan.scores {
		m.body.Freeze()
	}
}

// thaw drops the packed weights, before a caller may change the others.
func (m *Model) thaw() {
	m.use.Lock()
	defer m.use.Unlock()
	m.isLentOut = true
	if m.isFrozen.Swap(false) {
		m.free = nil
		m.body.Thaw()
	}
}
