package task

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/settings"
)

// Options configures Open.
type Options struct {
	Folder   string            // folder that holds the folders of the data sets
	Seed     uint64            // seed of generated samples and random splits
	Settings map[string]string // values of settings by name; the others keep their defaults

	// Tokens are the tokens in which texts are read; nil: the task's own. Context bounds the
	// positions of a sample in these tokens; 0: no bound.
	Tokens  *Tokens
	Context int

	// ScoreOnly allows data that a trained model is only scored on: one class, or no training
	// sample, is enough in the user's own files.
	ScoreOnly bool

	// DrawnSplits draws the split of each of the user's own items by itself. By default a tenth of
	// each class is held out for validation, and a tenth for the test.
	DrawnSplits bool

	// EncodePair returns the ids and types of a pair of texts, cut to most tokens, or to the
	// positions of the model if most is 0. types may be nil. If EncodePair is set, OpenLabelled
	// reads pairs.
	EncodePair func(text, pair string, most int) (ids, types []int32, err error)
}

// Setting describes a setting of a task.
type Setting struct{ Name, Default, Doc string }

// Row describes a task of the catalogue.
type Row struct {
	Name, Doc string
	DataSets  []string // data sets that the task can use; empty: its samples are generated, or a setting names their source
	Settings  []Setting
	open      func(*settingsReader) (Source, error)
	ask       func(*settingsReader, ModelInfo) (*Question, error) // nil: models of the task do not answer single inputs
}

// table is the catalogue, in display order.
var table = []Row{
	{"shapes", "Fleuret's triangles and rectangles: set both of a kind to their mean height", nil, shapesSettings, openShapes, askShapes},
	{"listops", "value of a nested expression, Long Range Arena's distribution", []string{"listops"}, listOpsSettings, openListOps, askExpression(17, listFirst)},
	{"listops6", "the same with FIRST and LAST and exact lengths, TaylorShift's", nil, listOps6Settings, openListOps6, askExpression(18, listLast+1)},
	{"copy", "repeat a sequence after a separator", nil, copySettings, openCopy, askTokens},
	{"induction", "say what followed the special token", nil, inductionSettings, openInduction, askTokens},
	{"mqar", "recall the values of keys, many in one sequence", nil, mqarSettings, openMQAR, askTokens},
	{"needle", "say the value that a line far back in a text gives to a key", []string{"tinyshakespeare", "enwik8", "warandpeace"}, needleSettings, openNeedle, askTokens},
	{"pathfinder", "whether two discs lie on one path, Long Range Arena", []string{"pathfinder32"}, pathfinderSettings, openPathfinder, askPathfinder},
	{"mnist", "handwritten digits as pixels or patches", []string{"mnist"}, mnistSettings, openMNIST, askMNIST},
	{"image", "CIFAR-10 in grey, pixel by pixel, Long Range Arena", []string{"cifar10"}, nil, openImage, askImage},
	{"mnist-gen", "handwritten digits drawn level by level", []string{"mnist"}, mnistGenSettings, openMNISTGen, nil},
	{"cifar-gen", "CIFAR-10 drawn level by level, channels of a pixel in turn", []string{"cifar10"}, nil, openCIFARGen, nil},
	{"text", "whether a film review is positive, byte by byte, Long Range Arena", []string{"imdb"}, reviewSettings, openReviews, askReview},
	{"retrieval", "whether one of two papers cites the other, Long Range Arena", []string{"aan"}, retrievalSettings, openRetrieval, askPair},
	{"films", "whether two reviews are of one film, a substitute for retrieval", []string{"imdb"}, reviewSettings, openFilms, askPair},
	{"genome", "species of a window of DNA", []string{"genome"}, genomeSettings, openGenome, askGenome},
	{CharLM, "next character of a text", []string{"tinyshakespeare", "enwik8", "warandpeace"}, textSettings, openCharLM, nil},
	{ByteLM, "next byte of a text", []string{"tinyshakespeare", "enwik8", "warandpeace"}, textSettings, openByteLM, nil},
	{PairsName, "targets of your texts: summaries, translations, other forms, byte by byte", nil, pairsSettings, openPairs, nil},
	{"series", "classes, numbers or labels of your sequences of numbers, or sets of points", nil, seriesSettings, openOwnSeries, askSeries},
	{forecastName, "the next rows of your table of numbers", nil, forecastSettings, openForecast, askForecast},
	{"fasta", "classes of your sequences of letters, DNA or others", nil, fastaSettings, openFASTA, askFASTA},
	{"wav", "classes of your sounds", nil, soundSettings, openSounds, askSound},
	{"picture", "classes of your pictures", nil, pictureSettings, openPictures, askOwnPicture},
	{ownName, "classes, numbers or labels of your texts", nil, ownSettings, openOwnTexts, askOwnText},
}

// IsText reports whether the task predicts the tokens of a text. Its sources are
// WindowSources.
func (r Row) IsText() bool { return r.Name == CharLM || r.Name == ByteLM }

// HasOwnClasses reports whether the class names come from the data.
func (r Row) HasOwnClasses() bool {
	switch r.Name {
	case ownName, seriesName, fastaName, "wav", "picture":
		return true
	}
	return false
}

// ReadsOwnData reports whether the task reads files of the user, and can read other files of the
// same form.
func (r Row) ReadsOwnData() bool {
	return r.HasOwnClasses() || r.Name == forecastName || r.Name == PairsName
}

// Rows returns the catalogue.
func Rows() []Row { return slices.Clone(table) }

// Lookup returns the row of the task with the given name. If there is none, it returns an error
// that lists all names.
func Lookup(name string) (Row, error) {
	var names []string
	for _, r := range table {
		if r.Name == name {
			return r, nil
		}
		names = append(names, r.Name)
	}
	return Row{}, fmt.Errorf("task %q: unknown; there are: %s", name, strings.Join(names, ", "))
}

// Open opens the task with the given name. It returns an error if the name or a setting is unknown,
// if a value is out of range, or if the data is missing or malformed. The error for an unknown
// setting lists the task's settings.
func Open(name string, o Options) (Source, error) {
	row, err := Lookup(name)
	if err != nil {
		return nil, err
	}
	op := newSettingsReader(&row, o)
	op.refuseUnknown()
	var s Source
	if err = op.err; err == nil {
		s, err = row.open(op)
	}
	if op.err != nil {
		err = op.err // the first error is the most specific
	}
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", name, err)
	}
	return s, nil
}

// settingsReader reads the settings of a task and keeps the first error.
type settingsReader struct {
	Options
	values *settings.Reader
	err    error
}

// splitter returns the division of the user's own data.
func (o *Options) splitter() splitter { return splitter{o.Seed, o.DrawnSplits} }

func newSettingsReader(row *Row, o Options) *settingsReader {
	return &settingsReader{Options: o, values: settings.NewReader("task "+row.Name, row.Settings, o.Settings)}
}

// refuseUnknown sets err if a setting is unknown to the task.
func (o *settingsReader) refuseUnknown() {
	if name, found := o.values.FindUnknown(); found {
		o.err = fmt.Errorf("setting %q: unknown; there are: %s", name, strings.Join(o.values.Names(), ", "))
	}
}

// text returns the value of a setting.
func (o *settingsReader) text(name string) string { return o.values.Text(name) }

// int returns the value of an integer setting. It sets err if the value is no integer.
func (o *settingsReader) int(name string) int {
	v := o.text(name)
	n, err := strconv.Atoi(v)
	if err != nil && o.err == nil {
		o.err = fmt.Errorf("setting %s: %q is no whole number", name, v)
	}
	return n
}

// bool returns the value of a boolean setting. It sets err if the value is neither true nor
// false.
func (o *settingsReader) bool(name string) bool {
	v := o.text(name)
	if v != "true" && v != "false" && o.err == nil {
		o.err = fmt.Errorf("setting %s: %q is neither true nor false", name, v)
	}
	return v == "true"
}

// oneOf returns the value of a setting with a fixed set of words. It sets err if the value is
// none of them.
func (o *settingsReader) oneOf(name string, words ...string) string {
	v := o.text(name)
	if !slices.Contains(words, v) && o.err == nil {
		o.err = fmt.Errorf("setting %s: %q is none of %s", name, v, strings.Join(words, ", "))
	}
	return v
}

// checkRange returns an error if x is outside [lo, hi].
func checkRange(name string, x, lo, hi int) error {
	if x < lo || x > hi {
		return fmt.Errorf("%s: it is %d, %d to %d are possible", name, x, lo, hi)
	}
	return nil
}
