package train

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tokenizer"
	"github.com/farfield-ml/farfield/train/data"
)

// Defaults of fine-tuning.
const (
	tuneEpochs    = 3
	tuneTokens    = 1 << 13 // positions of an update
	mostTuneBatch = 32
	leastTuneSize = 4
	tuneWarmUp    = 10   // the share of updates is one over this
	tuneRate      = 1e-4 // peak rate at width 384; it falls with the width
	tuneWidth     = 384  // width of tuneRate
	runRateShare  = 10   // a run's own peak rate is divided by this
	adapterRate   = 10   // the rate of adapters is multiplied by this

	tuneValidTokens = 1 << 15 // tokens of a validation on a text
	tuneFinalTokens = 1 << 18 // tokens of the final score on a text
)

// startModel is the model that a run starts from.
type startModel struct {
	model   *model.Model
	lacking []string     // weights that a published model does not have
	tokens  *task.Tokens // nil: the task's own
	classes []string
	config  Config // of the run; zero for a model without a run

	isPublished bool // a folder of package published
	cutsStart   bool // long texts lose their beginning
}

// tokenizerFile has the tokenizer of a model in the folder of a run or checkpoint.
const tokenizerFile = "tokenizer.json"

// saveTokens writes tokens to the folder dir; nothing for nil.
func saveTokens(dir string, k *task.Tokens) error {
	if k == nil {
		return nil
	}
	words := k.Vocabulary.Tokenizer()
	if words == nil {
		return k.Vocabulary.Save(filepath.Join(dir, vocabFile))
	}
	return atomicfile.Write(filepath.Join(dir, tokenizerFile), func(w io.Writer) error {
		_, err := w.Write(words.JSON())
		return err
	})
}

// loadTokens reads the tokens of a model of size tokens from the folder dir. It returns
// nil without an error if there are none.
func loadTokens(dir string, size int) (*task.Tokens, error) {
	words, err := tokenizer.Open(filepath.Join(dir, tokenizerFile))
	if err == nil && words.Size() > size {
		err = fmt.Errorf("%s: the tokenizer has %d tokens, the model %d", dir, words.Size(), size)
	}
	if err == nil {
		return &task.Tokens{Vocabulary: token.NewTokenizerVocabulary(words), Size: size}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	vocab, err := token.LoadVocabulary(filepath.Join(dir, vocabFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case vocab.Size() != size:
		return nil, fmt.Errorf("%s: the vocabulary has %d tokens, the model %d", dir, vocab.Size(), size)
	}
	return &task.Tokens{Vocabulary: vocab, Size: size}, nil
}

// openStart reads the model in the folder of a run, a checkpoint or a published model. A
// published model gets its family's head for classes, unless classes is nil.
func openStart(dir string, classes []string) (s startModel, err error) {
	if published.IsFolder(dir) {
		return openPublished(dir, classes)
	}
	m, vocab, err := loadModel(dir)
	if err != nil {
		return s, err
	}
	s.model = m
	size := m.Config().Vocab
	if vocab != nil {
		s.tokens = &task.Tokens{Vocabulary: vocab, Size: size}
	} else if s.tokens, err = loadTokens(dir, size); err != nil {
		return s, err
	}
	if isAlone(dir) {
		return s, nil
	}
	run := RunFolder(dir)
	if s.tokens == nil { // older checkpoints have no copy
		if s.tokens, err = loadTokens(run, size); err != nil {
			return s, err
		}
	}
	if s.config, err = RunConfig(run); errors.Is(err, fs.ErrNotExist) {
		return s, nil // a checkpoint that was saved by itself
	}
	s.cutsStart = s.config.CutsStart
	if err != nil || s.model.Config().Outputs == 0 {
		return s, err
	}
	row, _ := task.Lookup(s.config.Task)
	s.classes, err = readClasses(run, s.model.Config().Outputs)
	if errors.Is(err, fs.ErrNotExist) && (s.model.Config().Loss == model.Squared || !row.HasOwnClasses()) {
		return s, nil // without named classes
	}
	return s, err
}

// openPublished reads a published model for openStart.
func openPublished(dir string, classes []string) (startModel, error) {
	s := startModel{isPublished: true}
	var words *tokenizer.Tokenizer
	var failed error
	if classes != nil {
		c, err := published.OpenClassifier(dir, classes)
		if err != nil {
			return s, err
		}
		s.model, s.lacking = c.Model(), c.Lacking()
		words, failed = c.Tokenizer()
	} else {
		p, err := published.Open(dir)
		if err != nil {
			return s, err
		}
		s.model, words, failed = p.Model(), p.Tokenizer(), p.TokenizerErr()
	}
	if s.model.Config().Inputs > 0 {
		return s, fmt.Errorf("%s: the model reads pictures as preprocessor_config.json prepares them, no task does", dir)
	}
	if words == nil {
		return s, failed
	}
	// The run keeps the JSON, whose ids may differ from the ids of a tokenizer.model.
	words, err := tokenizer.Parse(words.JSON())
	if err != nil {
		return s, fmt.Errorf("%s: %w", dir, err)
	}
	s.tokens = &task.Tokens{Vocabulary: token.NewTokenizerVocabulary(words), Size: s.model.Config().Vocab}
	s.cutsStart, err = published.HasLeftTruncation(dir, words)
	return s, err
}

// startClasses returns the classes of n outputs with which the published model of a task is
// opened: names, or numbers without names. nil: the task has no classes of sequences.
func startClasses(name string, names []string, n int) []string {
	if row, err := task.Lookup(name); err != nil || row.IsText() {
		return nil
	}
	for i := len(names); i < n; i++ {
		names = append(names, fmt.Sprintf("LABEL_%d", i))
	}
	return names
}

// StartFrom returns c changed to start from the model in the folder dir: a run, a checkpoint or a
// published model. It sets the sizes of the model, the tokens, and the training settings for
// fine-tuning; steps and batch become 0, and PrepareTask derives them from the data. If c has no
// task, it gets the task of the run and the numbers of its evaluation samples. With a published
// decoder that task is a text, with other published models labelled texts. StartFrom returns an
// error if the model cannot be read.
func (c Config) StartFrom(dir string) (Config, error) {
	s, err := openStart(dir, nil)
	if err != nil {
		return c, fieldErrorf("{Init}: %w", err)
	}
	if c.Init, err = filepath.Abs(dir); err != nil {
		return c, err
	}
	if c.Task == "" {
		c.Task, c.Folder, c.DataSeed = s.config.Task, s.config.Folder, s.config.DataSeed
		c.TaskSet = maps.Clone(s.config.TaskSet)
		samples := s.config
		if c.Task == "" { // of a model without a run
			if c.Task = "file"; s.model.Config().Kind == model.Decoder {
				c.Task = task.ByteLM
			}
			samples = samplePreset(c.Task, 1, 1)
		}
		c.Stratified = samples.Stratified // the run may have learned from samples of other parts
		c.EvalSamples, c.FinalSamples = samples.EvalSamples, samples.FinalSamples
		if row, err := task.Lookup(c.Task); err == nil && row.IsText() {
			c.EvalSamples, c.FinalSamples = -1, -1
		}
	}
	if classes := startClasses(c.Task, nil, 1); s.isPublished && classes != nil {
		if s, err = openStart(dir, classes); err != nil {
			return c, fieldErrorf("{Init}: %w", err)
		}
	}
	if c.Task == s.config.Task {
		c.LRAQuirk, c.Standardise, c.InputMean, c.InputDeviation = s.config.LRAQuirk, s.config.Standardise, s.config.InputMean, s.config.InputDeviation
	}
	c.TaskSet = maps.Clone(c.TaskSet)
	delete(c.TaskSet, "length")     // of other data
	delete(c.TaskSet, "vocabulary") // of the preset
	c.Model, c.tokens, c.CutsStart = s.startConfig(), s.tokens, s.cutsStart
	c.complete = c.Model.Mechanism
	c.FarEvery, c.GroupLengths = 0, true
	c.Steps, c.Lengthened, c.Batch, c.Accumulate, c.FirstContext, c.FirstBatch, c.WarmUp = 0, nil, 0, 1, 0, 0, -1
	c.EvalEvery, c.SaveEvery, c.Adapters = -1, -1, 0
	c.Optimizer, c.Schedule, c.Decay, c.Beta1, c.Beta2, c.Clip = AdamW, LinearSchedule, 0.01, 0.9, 0.999, 1
	c.Rate, c.MinRate = tuneRate*tuneWidth/float64(c.Model.Width), 0
	if s.config.Rate > 0 {
		c.Rate = s.config.Rate / runRateShare
	}
	return c, nil
}

// startConfig returns the configuration of the model with all rows of its positions.
func (s *startModel) startConfig() model.Config {
	m := s.model.Config()
	if p, err := s.model.Params().Get("position.weight"); err == nil {
		m.PositionTable = p.Shape[0]
	}
	return m
}

// SetAdapters selects low-rank adapters of the given rank and their learning rate. Rank 0 selects
// training of all weights and its learning rate. Adapters learn at ten times the rate.
func (c *Config) SetAdapters(rank int) {
	switch {
	case c.Adapters == 0 && rank > 0:
		c.Rate *= adapterRate
	case c.Adapters > 0 && rank == 0:
		c.Rate /= adapterRate
	}
	c.Adapters = rank
}

// setTuneBatch derives the batch from the data where StartFrom left it open.
func (c *Config) setTuneBatch(src data.Source) {
	if c.Batch != 0 {
		return
	}
	spec := src.Spec()
	c.Batch = min(max(tuneTokens/max(spec.Length, 1), leastTuneSize), mostTuneBatch)
	for n := spec.Count[data.Train]; n != data.Endless && c.Batch > leastTuneSize && n < 20*c.Batch; {
		c.Batch /= 2 // a few updates need a few samples each
	}
}

// setTuning derives steps, warm-up, intervals and the windows of evaluations from the data
// where StartFrom left them open.
func (c *Config) setTuning(src data.Source) {
	epoch, ends := c.epochUpdates(src)
	if !ends {
		epoch = 100 // updates of windows without end
	}
	if c.Steps == 0 {
		c.Steps = tuneEpochs * epoch
	}
	if c.WarmUp < 0 {
		c.WarmUp = c.Steps / tuneWarmUp
	}
	if c.EvalEvery < 0 {
		c.EvalEvery = epoch
	}
	if c.SaveEvery < 0 {
		c.SaveEvery = min(epoch, 100)
	}
	if c.EvalSamples == -1 {
		c.EvalSamples = max(tuneValidTokens/max(c.Model.Context, 1), 1)
	}
	if c.FinalSamples == -1 {
		c.FinalSamples = max(tuneFinalTokens/max(c.Model.Context, 1), 1)
	}
}

// startTokens returns the tokens of the model that the run starts from, and the end at which
// they are cut; nil: the task's own.
func (c *Config) startTokens() *task.Tokens {
	if c.tokens == nil || c.Init == "" || !c.CutsStart {
		return c.tokens
	}
	return &task.Tokens{Vocabulary: c.tokens.Vocabulary, Size: c.tokens.Size, CutsStart: true}
}

// startContext returns the number of positions of the model that the run starts from; 0:
// there is no bound.
func (c *Config) startContext() int {
	m := &c.Model
	if c.Init == "" || m.Positions != model.Learned {
		return 0
	}
	rows := m.PositionTable - m.PositionOffset
	if m.Pool == model.PoolCLS {
		rows--
	}
	return rows
}

// keepStart copies the weights of the model that the run starts from. The head is new if
// its outputs are others. It returns an error if another weight does not fit.
func (c *Config) keepStart(m *model.Model, classes []string) error {
	s, err := openStart(c.Init, startClasses(c.Task, classes, c.Model.Outputs))
	if err != nil {
		return fieldErrorf("{Init}: %w", err)
	}
	head := s.isPublished || s.config.Task == c.Task && slices.Equal(s.classes, classes)
	for _, p := range modelTensors(m) {
		if slices.Contains(s.lacking, p.Name) {
			continue
		}
		if err := copyStart(p, s.model, head); err != nil {
			return fieldErrorf("{Init}: %s: %w; leave out flags that change the model", c.Init, err)
		}
	}
	for _, p := range s.model.Params().All() {
		if _, err := m.Params().Get(p.Name); err != nil && !strings.HasPrefix(p.Name, "head") {
			return fieldErrorf("{Init}: %s: %s has no place in the model; leave out flags that change the model", c.Init, p.Name)
		}
	}
	return nil
}

// publishedFolder is the folder of a run with the description of the published model that
// it starts from.
const publishedFolder = "published"

// PublishedFolder returns the folder inside a run that describes the published model from which the
// run started; published.WriteLike reads it. path is the run or one of its checkpoints.
// PublishedFolder returns "" if the run did not start from a published model.
func PublishedFolder(path string) string {
	if dir := filepath.Join(RunFolder(path), publishedFolder); !isAlone(path) && published.IsFolder(dir) {
		return dir
	}
	return ""
}

// publishedStart returns the folder with the description of the published model that the
// run starts from, itself or through other runs; "" for other models.
func (c *Config) publishedStart() string {
	if c.Init == "" || published.IsFolder(c.Init) {
		return c.Init
	}
	return PublishedFolder(c.Init)
}

// describeStart writes the description of the published model that the run starts from;
// nothing for other models.
func (t *Trainer) describeStart() error {
	c := &t.config
	from := c.publishedStart()
	if from == "" {
		return nil
	}
	classes := startClasses(c.Task, t.classes, c.Model.Outputs)
	if err := published.CopyDescription(filepath.Join(t.dir, publishedFolder), from, classes); err != nil {
		return fieldErrorf("{Init}: %w", err)
	}
	return nil
}

// copyStart copies p from the model from. With head set it copies a head of the same
// shape, too. The units before the head are copied where they are the same.
func copyStart(p *param.Param, from *model.Model, head bool) error {
	q, err := from.Params().Get(p.Name)
	if err != nil {
		if q, err = from.Constants().Get(p.Name); err != nil && strings.HasPrefix(p.Name, "head") {
			return nil
		}
	}
	switch {
	case err != nil:
		return err
	case strings.HasPrefix(p.Name, "head") && !(slices.Equal(p.Shape, q.Shape) && (head || strings.HasPrefix(p.Name, "head_"))):
		return nil
	case slices.Equal(p.Shape, q.Shape):
	default:
		return fmt.Errorf("%s: is %v, the run's is %v", p.Name, q.Shape, p.Shape)
	}
	copy(p.Data, q.Data)
	return nil
}
