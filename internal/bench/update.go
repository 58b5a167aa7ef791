package bench

import (
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/optim"
	"github.com/farfield-ml/farfield/rng"
)

// Update is what an update of a model needs: random tokens and targets, and the
// moments of an optimizer.
type Update struct {
	Model *model.Model[float32]
	Batch model.Batch // of the pass that comes, or came last
	optim *optim.AdamW[float32]

	passes          int
	tokens, targets []int32 // of all passes
}

// NewUpdate returns an update of a model of tokens and classes: passes of batch
// sequences each, as long as its context.
func NewUpdate(c model.Config, batch, passes int) (*Update, error) {
	key := rng.New(1)
	m, err := model.New[float32](c, key.Fold(0))
	if err != nil {
		return nil, err
	}
	n, rows := batch*c.Context, c.Rows(batch, c.Context)
	u := &Update{Model: m, passes: passes, tokens: make([]int32, passes*n), targets: make([]int32, passes*rows)}
	for i := range u.tokens {
		u.tokens[i] = int32(key.Fold(1).Intn(uint64(i), c.Vocab))
	}
	classes := c.Outputs
	if classes == 0 {
		classes = c.Vocab
	}
	for i := range u.targets {
		u.targets[i] = int32(key.Fold(2).Intn(uint64(i), classes))
	}
	u.Batch = model.Batch{B: batch, N: c.Context, Tokens: u.tokens[:n], Targets: u.targets[:rows]}
	u.optim = optim.NewAdamW(m.Params())
	return u, nil
}

// Kept makes an update and returns the bytes of memory that are in use since: what
// the passes keep.
func (u *Update) Kept() (int64, error) {
	before := live()
	err := u.Run()
	return live() - before, err
}

// Run makes an update: the gradients of all passes, which add up to that of the mean
// loss, and one step of the optimizer.
func (u *Update) Run() error {
	u.Model.Params().ZeroGrad()
	n, rows := len(u.Batch.Tokens), len(u.Batch.Targets)
	for i := range u.passes {
		u.Batch.Tokens, u.Batch.Targets = u.tokens[i*n:][:n], u.targets[i*rows:][:rows]
		if _, err := u.Model.Forward(&u.Batch); err != nil {
			return err
		}
		if err := u.Model.Backward(1 / float32(u.passes)); err != nil {
			return err
		}
	}
	u.optim.Step(1e-4, optim.Clip(optim.GradNorm(u.Model.Params()), 1))
	return nil
}
