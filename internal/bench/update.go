package bench

import (
	"context"
	"slices"

	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/optim"
	"github.com/farfield-ml/farfield/rng"
)

// Update holds what an update of a model needs: random tokens and targets, and the moments of an
// optimizer.
type Update struct {
	Model *model.Model
	Batch model.Batch // batch of one pass
	optim *optim.AdamW

	passes          int
	tokens, targets []int32 // tokens and targets of all passes
	lanes           []lane
}

// lane makes passes beside others, with a model and gradients of its own. The first
// lane has the model of the update.
type lane struct {
	model *model.Model
	err   error
}

// NewUpdate returns an update of a model of tokens and classes. It has the given number of passes,
// each with batch sequences as long as the context. If the passes can be divided evenly among the
// threads, two or more for each, the threads make passes side by side, as the ranks of a training
// do (train.Job); otherwise they share the layers of one pass. NewUpdate returns an error if the
// Config is invalid.
func NewUpdate(c model.Config, batch, passes int) (*Update, error) {
	key := rng.New(1)
	n, rows := batch*c.Context, c.Rows(batch, c.Context)
	u := &Update{passes: passes, tokens: make([]int32, passes*n), targets: make([]int32, passes*rows), lanes: make([]lane, 1)}
	if t := par.Threads(); passes >= 2*t && passes%t == 0 {
		u.lanes = make([]lane, t)
	}
	for i := range u.lanes {
		m, err := model.New(c, key.Fold(0))
		if err != nil {
			return nil, err
		}
		u.lanes[i].model = m
	}
	u.Model = u.lanes[0].model
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
	u.optim = optim.NewAdamW(u.Model.Params())
	return u, nil
}

// SetBatch makes b the batch of every pass. It must fit into the context of the model, and the
// update keeps it.
func (u *Update) SetBatch(b *model.Batch) {
	u.Batch = *b
	u.tokens, u.targets = slices.Repeat(b.Tokens, u.passes), slices.Repeat(b.Targets, u.passes)
}

// Models returns the models that make passes. They have the same weights.
func (u *Update) Models() (list []*model.Model) {
	for i := range u.lanes {
		list = append(list, u.lanes[i].model)
	}
	return list
}

// MeasureMemory makes an update and returns how many bytes its passes keep. It returns an error
// where Run does.
func (u *Update) MeasureMemory() (int64, error) {
	before := liveBytes()
	err := u.Run()
	return liveBytes() - before, err
}

// Run makes an update: the gradients of all passes, whose sum is the gradient of the mean loss, and
// one step of the optimizer. It returns the first error of a pass.
func (u *Update) Run() error {
	if len(u.lanes) == 1 {
		u.lanes[0].err = u.runPass(0)
	} else {
		par.RunParts(len(u.lanes), func(i int) { u.lanes[i].err = u.runPass(i) })
	}
	for i := range u.lanes {
		if err := u.lanes[i].err; err != nil {
			return err
		}
	}
	all, t := u.Model.Params().All(), kernel.Active[float32]()
	for _, lane := range u.lanes[1:] {
		for i, p := range lane.model.Params().All() {
			t.Add(all[i].Grad, all[i].Grad, p.Grad)
		}
	}
	u.optim.Step(1e-4, optim.ClipFactor(optim.GradNorm(u.Model.Params()), 1))
	for _, lane := range u.lanes[1:] {
		for i, p := range lane.model.Params().All() {
			copy(p.Data, all[i].Data)
		}
	}
	return nil
}

// runPass makes the passes of a lane.
func (u *Update) runPass(lane int) error {
	m, b := u.lanes[lane].model, u.Batch
	m.Params().ZeroGrad()
	n, rows := len(b.Tokens), len(b.Targets)
	for i := lane; i < u.passes; i += len(u.lanes) {
		b.Tokens, b.Targets = u.tokens[i*n:][:n], u.targets[i*rows:][:rows]
		if _, err := m.Forward(context.Background(), &b); err != nil {
			return err
		}
		if err := m.Backward(1 / float32(u.passes)); err != nil {
			return err
		}
	}
	return nil
}
