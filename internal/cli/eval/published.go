package eval

import (
	"maps"
	"strings"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
)

// maxWindow bounds the tokens of a window of a published decoder.
const maxWindow = 2048

// The tasks of labelled texts and of pictures.
const (
	fileTask    = "file"
	pictureTask = "picture"
)

// checkFlags returns an error for flags that are not of a run, or not of a published model.
func (c *Command) checkFlags(isPublished bool) error {
	switch {
	case !isPublished && (c.Task != "" || len(c.TaskSet) > 0 || c.Pairs):
		return env.InputErrorf("--task, --task-set, --pairs: are for published models, a run has its task")
	case !isPublished:
		return nil
	case c.Task != "" && c.Task != fileTask && c.Task != pictureTask:
		return env.InputErrorf("--task: %s, a published model has %s or %s", c.Task, fileTask, pictureTask)
	case c.Stride != nil && (c.Task != "" || len(c.TaskSet) > 0 || c.Pairs):
		return env.InputErrorf("--stride: is for a text, not for labelled data")
	case c.TaskSet["data"] != "":
		return env.InputErrorf("--task-set data: --data names the data")
	case c.Data == "":
		return env.InputErrorf("--data: is not given, and %s has no data of its own", c.Model)
	}
	return nil
}

// published scores the model of a folder: classes on labelled texts or pictures, or a decoder
// on a text.
func (c *Command) published(e *env.Env, m *inference.Model) error {
	p := m.Published()
	runs.PrintNotes(e.Notes(), p)
	own, score := fileTask, func(e *env.Env, p *published.Model) error { return c.labelled(e, m) }
	if p.Config().Inputs > 0 {
		own, score = pictureTask, c.pictures
	}
	switch {
	case p.ClassKind() == published.NoClasses && own == pictureTask:
		return env.InputErrorf("%s: the %s has no head of classes", c.Model, p.Family())
	case c.Pairs && (p.ClassKind() == published.NoClasses || own == pictureTask):
		return env.InputErrorf("--pairs: the %s of %s does not classify texts", p.Family(), c.Model)
	case p.ClassKind() != published.NoClasses && c.Task != "" && c.Task != own:
		return env.InputErrorf("--task: %s, the %s has %s", c.Task, p.Family(), own)
	case p.ClassKind() != published.NoClasses && c.Stride != nil:
		return env.InputErrorf("--stride: the %s of %s predicts no text", p.Family(), c.Model)
	case p.ClassKind() != published.NoClasses:
		return score(e, p)
	}
	if err := m.CheckTexts(); err != nil {
		return env.MarkInput(err)
	}
	err := m.CheckNextTokens()
	switch {
	case err != nil:
		return env.InputErrorf("%w, and has no classes", err)
	case c.Task != "" || len(c.TaskSet) > 0:
		return env.InputErrorf("--task, --task-set: %s has no head of classes", c.Model)
	}
	return c.decoded(e, m)
}

// labelled scores a published model with classes on labelled texts.
func (c *Command) labelled(e *env.Env, m *inference.Model) error {
	p := m.Published()
	if err := p.CheckClasses(); err != nil {
		return env.MarkInput(err)
	}
	labels := p.Labels()
	switch p.ClassKind() {
	case published.TokenLabels, published.MultiLabel:
		return env.InputErrorf("%s: its classes are of tokens, or several of a text; labelled texts have one class each", c.Model)
	case published.Regression:
		if len(labels) != 1 {
			return env.InputErrorf("%s: gives %d numbers, labelled texts have one", c.Model, len(labels))
		}
		labels = nil
	}
	settings := map[string]string{"data": c.Data}
	maps.Copy(settings, c.TaskSet)
	config := p.Config()
	cutsStart, err := published.HasLeftTruncation(m.Path(), p.Tokenizer())
	if err != nil {
		return env.MarkInput(err)
	}
	o := task.Options{Settings: settings, Tokens: &task.Tokens{Vocabulary: token.NewTokenizerVocabulary(p.Tokenizer()), Size: config.Vocab, CutsStart: cutsStart}}
	if config.Positions == model.Learned {
		o.Context = config.Context
	}
	if c.Pairs {
		o.EncodePair = func(text, pair string, most int) (ids, types []int32, err error) {
			return p.EncodePair(strings.ToValidUTF8(text, "\ufffd"), strings.ToValidUTF8(pair, "\ufffd"), most)
		}
	}
	var src *task.OwnTexts
	err = e.RunInterruptibly(func() (err error) {
		src, err = task.OpenLabelled(o, labels)
		return env.MarkInput(err)
	})
	if err != nil {
		return err
	}
	if c.All {
		src = src.TestOnly()
	}
	noteKeys(e, m, src)
	return c.scored(e, p, src, src.JudgedBaselines)
}

// pictures scores a model of images on pictures in folders of their classes.
func (c *Command) pictures(e *env.Env, p *published.Model) error {
	if err := p.CheckPictures(); err != nil {
		return env.MarkInput(err)
	}
	switch {
	case len(c.TaskSet) > 0:
		return env.InputErrorf("--task-set: pictures become what the model reads, there is nothing to set")
	case p.ClassKind() != published.SingleLabel:
		return env.InputErrorf("%s: its outputs are numbers, or several classes of a picture; a folder is one class", c.Model)
	}
	config := p.Config()
	var src *task.LabelledPictures
	err := e.RunInterruptibly(func() (err error) {
		src, err = task.OpenLabelledPictures(c.Data, p.Labels(), config.Context, config.Inputs, func(path string) ([]float32, error) {
			pixels, err := p.ReadPixels(path)
			if err != nil {
				return nil, env.MarkInput(err)
			}
			return p.Patches(pixels)
		})
		return env.MarkInput(err)
	})
	if err != nil {
		return err
	}
	if c.All {
		src = src.TestOnly()
	}
	return c.scored(e, p, src, func() ([]task.Baseline, error) { return src.Baselines(0) })
}

// scored scores a model with classes on src, beside baselines.
func (c *Command) scored(e *env.Env, p *published.Model, src task.Source, baselines func() ([]task.Baseline, error)) error {
	r := &Report{Model: c.Model, Data: c.Data, Precision: c.Precision.Precision}
	if err := c.evaluate(e, r, p.Model(), src); err != nil {
		return err
	}
	return c.judge(e, r, src, baselines)
}

// decoded scores a decoder on a text.
func (c *Command) decoded(e *env.Env, m *inference.Model) error {
	vocab, err := m.Vocabulary()
	if err != nil {
		return env.MarkInput(err)
	}
	r := &Report{Model: c.Model, Precision: c.Precision.Precision}
	var src task.Source
	spaces := 0 // that the tokenizer puts before the text
	err = e.RunInterruptibly(func() error {
		text, err := runs.OpenRunText(c.Model, c.Data, c.Folder, vocab, c.All)
		if err != nil {
			return env.MarkInput(err)
		}
		runs.KeepHeapTight(text)
		r.Data = text.Corpus.Name
		if spaces, err = text.Tokens(task.Valid).CheckExact(); err != nil {
			return env.InputErrorf("%s: %w", text.Corpus.Name, err)
		}
		config, begin := m.Config(), vocab.Tokenizer().AppendStart(nil)
		window := min(config.Context, maxWindow) - len(begin)
		if window < 1 {
			return env.InputErrorf("%s: %d positions leave no room behind %d tokens that begin a text", c.Model, config.Context, len(begin))
		}
		if src, err = c.windows(text.ForModel(config.Vocab, begin), window); err != nil {
			return env.MarkInput(err)
		}
		if len(begin) == 0 || !c.All { // the first token is no target
			spaces = 0
		}
		return nil
	})
	if err != nil {
		return err
	}
	noteKeys(e, m, src)
	if err := c.evaluate(e, r, m.Model(), src); err != nil {
		return err
	}
	if spaces > 0 {
		all := r.Bits * float64(r.Bytes)
		r.Bytes -= int64(spaces)
		r.Bits = all / float64(r.Bytes)
	}
	return c.write(e, r)
}
