package task

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/dataset"
)

// Question is a task without data, which makes samples of new inputs. They form its test split. It
// must not be used concurrently.
type Question struct {
	spec      Spec
	classes   []string
	inputKind string // description of an input
	readLine  func(s *Sample, text []byte) error
	readFile  func(path string) ([]Input, error)
	samples   []Sample
	last      []float64 // last values of the input
	lineSize  int       // tokens in the last line of text, before it was cut
}

// Input is one of the inputs in a file.
type Input struct {
	Name    string    // name within the file; "": the file has only one input
	Samples []Sample  // one sample, or for Labels consecutive windows
	Size    int       // positions in the file before they were cut; 0: none was cut
	Last    []float64 // last value of each column for a forecast, to which outputs are added
}

// ModelInfo holds the properties of a trained model that are not determined by its task.
type ModelInfo struct {
	Classes  []string // class names, in the order of their numbers
	Channels int      // numbers at each position of an input
	Columns  []string // names of the channels, for files with names; nil: any names
	Length   int      // positions of the context
	Outputs  int      // numbers of an output
	Scales   *Scales  // scales of the output; nil: not scaled

	Tokens *Tokens // of texts; nil: the task's own
}

// Scales are the mean and deviation of standardised numbers. A scaled number x stands for
// x·Deviation[j] + Mean[j], where j is its index modulo len(Mean).
type Scales struct {
	Mean      []float64 `json:"mean"`
	Deviation []float64 `json:"deviation"`
}

// ScaledSource is a source with standardised targets.
type ScaledSource interface {
	Source
	// Scales returns the scales of the targets, or nil if these are not scaled.
	Scales() *Scales
}

// CheckAskable returns an error if the name is unknown or the task's models take no single
// input. The error names the verb to use instead.
func CheckAskable(name string) error {
	row, err := Lookup(name)
	switch {
	case err != nil:
		return err
	case row.ask != nil:
		return nil
	case name == PairsName:
		return fmt.Errorf("task %s: its models write targets: farfield predict prints them, Generate of farfield.Model goes on behind a source and the byte %#02x", name, pairSeparator)
	case row.IsText():
		return fmt.Errorf("task %s: its models go on with a text: farfield generate writes, farfield score says what a text takes", name)
	}
	return fmt.Errorf("task %s: its models draw: farfield generate --images", name)
}

// Ask returns a task without data. set holds its settings, k describes the model. k.Classes is
// needed only where the class names come from data. It returns the errors of CheckAskable, or
// an error if a setting or k does not fit the task.
func Ask(name string, set map[string]string, k ModelInfo) (*Question, error) {
	if err := CheckAskable(name); err != nil {
		return nil, err
	}
	row, err := Lookup(name)
	if err != nil {
		return nil, err
	}
	o := newSettingsReader(&row, Options{Settings: set})
	if o.refuseUnknown(); o.err == nil {
		var q *Question
		if q, err = row.ask(o, k); err == nil && o.err == nil {
			q.spec.Name, q.spec.Parts, q.spec.Metric = name, max(q.spec.Parts, 1), Accuracy
			if q.spec.Kind == Class && q.spec.Classes == 0 {
				q.spec.Classes = len(q.classes)
			}
			if q.spec.Outputs > 0 {
				q.spec.Metric = MSE
			}
			return q, nil
		}
	}
	if o.err != nil {
		err = o.err
	}
	return nil, fmt.Errorf("task %s: %w", name, err)
}

// NeedsLine reports whether an input is a line of text, rather than a file.
func (q *Question) NeedsLine() bool { return q.readLine != nil }

// InputKind describes an input in words.
func (q *Question) InputKind() string { return q.inputKind }

// ClassNames returns the names of the classes; without names, their numbers. The caller must
// not change it.
func (q *Question) ClassNames() []string {
	if q.classes == nil && q.spec.Classes > 0 {
		for i := range q.spec.Classes {
			q.classes = append(q.classes, strconv.Itoa(i))
		}
	}
	return q.classes
}

// SetLine makes a line the only sample. It returns an error if the line is no input of the
// task.
func (q *Question) SetLine(text []byte) error {
	if q.samples == nil {
		q.samples = make([]Sample, 1)
	}
	q.samples = q.samples[:1]
	resetSample(&q.samples[0])
	return q.readLine(&q.samples[0], text)
}

// LineSize returns the tokens of the last line of text, before it was cut to the length
// of the task; 0 where lines are no texts.
func (q *Question) LineSize() int { return q.lineSize }

// ReadFile returns the inputs in a file. It returns an error if the file cannot be read or does
// not fit the model.
func (q *Question) ReadFile(path string) ([]Input, error) { return q.readFile(path) }

// SetInput replaces the test split by the samples of an input.
func (q *Question) SetInput(g Input) { q.samples, q.last = g.Samples, g.Last }

// Last returns the last value of each column of an input, which the outputs of a forecast are added
// to; nil: outputs are as they are.
func (q *Question) Last() []float64 { return q.last }

// Spec returns the specification of the samples.
func (q *Question) Spec() Spec {
	s := q.spec
	s.Count = [3]int{0, 0, len(q.samples)}
	return s
}

// Sample overwrites s with sample i of the input. Labels are -1 and targets 0. It returns an
// error if the split has no sample i.
func (q *Question) Sample(s *Sample, split Split, i int) error {
	spec := q.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	resetSample(s)
	from := &q.samples[i]
	s.Tokens, s.Values, s.Cut = append(s.Tokens, from.Tokens...), append(s.Values, from.Values...), from.Cut
	s.Values64 = append(s.Values64, from.Values64...)
	rows := len(s.Tokens)
	if spec.Vocab == 0 {
		rows = len(s.Values) / spec.Channels
	}
	switch spec.Kind {
	case Labels, Next:
		s.Labels = padSlice(s.Labels, rows, -1)
	case Regression:
		s.Targets = padSlice(s.Targets, spec.Outputs, 0)
	case Trace:
		s.Targets = padSlice(s.Targets, rows*spec.Outputs, 0)
	}
	return nil
}

// Baselines returns no baselines and no error.
func (q *Question) Baselines(int) ([]Baseline, error) { return nil, nil }

// errEmpty is the error of an empty line.
var errEmpty = errors.New("the text is empty")

// askText returns the question about the first length bytes of a text.
func askText(spec Spec, classes []string, length int) (*Question, error) {
	if err := checkRange("length", length, 1, 1<<24); err != nil {
		return nil, err
	}
	spec.Vocab, spec.Length = 257, length
	q := &Question{spec: spec, classes: classes, inputKind: "a line of text"}
	q.readLine = func(s *Sample, text []byte) error {
		if len(text) == 0 {
			return errEmpty
		}
		q.lineSize = len(text)
		s.Tokens = appendBytes(s.Tokens, text, length)
		return nil
	}
	return q, nil
}

// askTokenText returns the question about the first tokens of a text by the tokens of k.
func askTokenText(spec Spec, k ModelInfo) (*Question, error) {
	if spec.Kind == Labels {
		return nil, errByteLabels
	}
	spec.Vocab, spec.Length = k.Tokens.Size, k.Length
	ends := k.Tokens.findEnds()
	q := &Question{spec: spec, classes: k.Classes, inputKind: "a line of text"}
	q.readLine = func(s *Sample, text []byte) error {
		ids, err := k.Tokens.encode(text)
		q.lineSize = len(ids)
		s.Tokens = ends.appendTruncated(s.Tokens, ids, k.Length)
		return err
	}
	return q, nil
}

// askPair returns the question about two texts, separated by a tab.
func askPair(o *settingsReader, _ ModelInfo) (*Question, error) {
	length := o.int("length")
	if err := checkRange("length", length, 1, 1<<20); err != nil {
		return nil, err
	}
	return &Question{spec: Spec{Kind: Class, Vocab: 257, Length: 2 * length, Parts: 2, Classes: 2}, classes: pairClasses,
		inputKind: "a line of two texts with a tab between them", readLine: func(s *Sample, text []byte) error {
			a, b, found := strings.Cut(string(text), "\t")
			if !found || a == "" || b == "" {
				return fmt.Errorf("%.40q is not two texts with a tab between them", text)
			}
			setPair(s, []byte(a), []byte(b), length, false)
			return nil
		}}, nil
}

// askExpression returns the question for the value of an expression whose tokens are below end.
// The model's context bounds its length.
func askExpression(vocab int, end int32) func(*settingsReader, ModelInfo) (*Question, error) {
	return func(_ *settingsReader, k ModelInfo) (*Question, error) {
		return &Question{spec: Spec{Kind: Class, Vocab: vocab, Length: k.Length, Classes: 10}, inputKind: "a line with an expression such as [MAX 2 [MIN 8 9 ] 0 ]",
			readLine: func(s *Sample, text []byte) (err error) {
				if s.Tokens, err = ParseExpression(s.Tokens, string(text)); err != nil {
					return err
				}
				for _, t := range s.Tokens {
					if t >= end {
						return fmt.Errorf("%q is no operator of this task", listNames[t])
					}
				}
				return tooLong(len(s.Tokens), k.Length)
			}}, nil
	}
}

// askTokens returns the question for the next token at each number of a line. Numbers are
// below the model's outputs.
func askTokens(_ *settingsReader, k ModelInfo) (*Question, error) {
	return &Question{spec: Spec{Kind: Next, Vocab: k.Outputs, Length: k.Length, Classes: k.Outputs}, inputKind: "a line of whole numbers with blanks between them",
		readLine: func(s *Sample, text []byte) error {
			for word := range strings.FieldsSeq(string(text)) {
				x, err := strconv.Atoi(word)
				if err != nil || x < 0 || x >= k.Outputs {
					return fmt.Errorf("%.40q is no token, 0 to %d are", word, k.Outputs-1)
				}
				s.Tokens = append(s.Tokens, int32(x))
			}
			if len(s.Tokens) == 0 {
				return errEmpty
			}
			return tooLong(len(s.Tokens), k.Length)
		}}, nil
}

// tooLong returns an error if n exceeds the length of the model's context.
func tooLong(n, length int) error {
	if n > length {
		return fmt.Errorf("it has %d tokens, the model %d positions", n, length)
	}
	return nil
}

// askPicture returns the question for the class of a picture, scaled to [side, side]. Samples
// are RGB or grey patches of side patch, or grey tokens if patch is 0.
func askPicture(side, patch int, colour bool, classes []string, count int) *Question {
	spec := Spec{Kind: Class, Vocab: levels, Length: side * side, Classes: count}
	channels := 1
	if colour {
		channels = 3
	}
	if patch > 0 {
		spec.Vocab, spec.Channels, spec.Length = 0, channels*patch*patch, side*side/(patch*patch)
	}
	return &Question{spec: spec, classes: classes, inputKind: "a PNG or JPEG file", readFile: func(path string) ([]Input, error) {
		p, err := dataset.ReadFile(path, dataset.ReadPicture)
		if err != nil {
			return nil, err
		}
		square, s := resizePicture(p, side), Sample{}
		if patch > 0 && colour {
			s.Values = appendPatches(nil, square, side, side, 3, patch)
			return []Input{{Samples: []Sample{s}}}, nil
		}
		var pixels []byte
		for i := 0; i < len(square); i += 3 {
			pixels = append(pixels, GreyLevel(square[i], square[i+1], square[i+2]))
		}
		if patch > 0 {
			s.Values = appendPatches(nil, pixels, side, side, 1, patch)
		} else {
			for _, x := range pixels {
				s.Tokens = append(s.Tokens, int32(x))
			}
		}
		return []Input{{Samples: []Sample{s}}}, nil
	}}
}

// askValues returns the question about a file of rows of numbers. The sample is the first
// window of the model's context, or with windows all consecutive windows.
func askValues(spec Spec, classes []string, k ModelInfo, windows bool) *Question {
	spec.Channels, spec.Length = k.Channels, k.Length
	return &Question{spec: spec, classes: classes, inputKind: fmt.Sprintf("a CSV, TSV or NPY file of rows of %d numbers", k.Channels), readFile: func(path string) ([]Input, error) {
		v, err := dataset.ReadValues(path, "")
		if err != nil {
			return nil, err
		}
		g, err := valuesInput(path, v, &spec, windows)
		if err != nil {
			return nil, err
		}
		if err := checkColumns(v.Names, k.Columns, "the model learned from"); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return g, nil
	}}
}

// valuesInput returns numbers as an input of one or all windows. It returns an error if their
// columns differ from the model's channels.
func valuesInput(path string, v *dataset.Values, spec *Spec, windows bool) ([]Input, error) {
	if v.Columns != spec.Channels {
		return nil, fmt.Errorf("%s: its rows have %d numbers, the model learned from %d", path, v.Columns, spec.Channels)
	}
	var g Input
	if !windows {
		g.Size = len(v.Numbers) / v.Columns
	}
	n := spec.Length * v.Columns
	for i := 0; i < len(v.Numbers) && (i == 0 || windows); i += n {
		end := min(i+n, len(v.Numbers))
		s := Sample{Values: v.Numbers[i:end]}
		if v.Numbers64 != nil {
			s.Values64 = v.Numbers64[i:end]
		}
		g.Samples = append(g.Samples, s)
	}
	return []Input{g}, nil
}
