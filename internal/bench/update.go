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
	Batch model.Batch
	optim *optim.AdamW[float32]
}

// NewUpdate returns an update of a model of tokens and classes, with batch
// sequences as long as its context.
func NewUpdate(c model.Config, batch int) (*Update, error) {
	key := rng.New(1)
	m, err := model.New[float32](c, key.Fold(0))
	if err != nil {
		return nil, err
	}
	n := batch * c.Context
	u := &Update{Model: m, Batch: model.Batch{B: batch, N: c.Context, Tokens: make([]int32, n), Targets: make([]int32, c.Rows(batch, c.Context))}}
	for i := range u.Batch.Tokens {
		u.Batch.Tokens[i] = int32(key.Fold(1).Intn(uint64(i), c.Vocab))
	}
	classes := c.Outputs
	if classes == 0 {
		classes = c.Vocab
	}
	for i := range u.Batch.Targets {
		u.Batch.Targets[i] = int32(key.Fold(2).Intn(uint64(i), classes))
	}
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

// Run makes an update.
func (u *Update) Run() error {
	u.Model.Params().ZeroGrad()
	if _, err := u.Model.Forward(&u.Batch); err != nil {
		return err
	}
	if err := u.Model.Backward(1); err != nil {
		return err
	}
	u.optim.Step(1e-4, optim.Clip(optim.GradNorm(u.Model.Params()), 1))
	return nil
}
