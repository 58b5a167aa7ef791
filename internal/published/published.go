// Package published opens folders of published transformers: config.json,
// model.safetensors or its index, and a tokenizer. Open makes a model of package model
// and keeps the names of its weights, so that Save gives the folder back.
//
// One file describes each family of model_types. A field of config.json that changes the function
// and is unknown or unsupported is an error with the name of the field.
//
// Package pretrained is what a user of the library needs of it.
package published

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/farfield-ml/farfield/internal/exchanged"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Interpolate is a value of Options.Positions: learned positions are interpolated for
// sequences longer than their table.
const Interpolate = exchanged.Interpolate

// Options are pretrained.Options, which describes the fields.
type Options struct {
	Positions    string
	Exchange     *model.Exchange
	Precision    nn.Precision
	IgnoreFields []string
}

// Model is a published model. Its methods may be called concurrently as long as no weight changes.
// Gradients waits for other calls and excludes them.
type Model struct {
	inputReader
	dir     string
	text    []byte // the bytes of config.json
	stored  []stored
	notes   []string
	body    *model.Model
	poolers poolers
	// calibration describes from what an exchanged model was made; nil: the model is not
	// exchanged.
	calibration *exchanged.Calibration
	texts       textReader
	passes      passPool

	pictures *pictureReader            // nil: the model reads texts
	sentence func() (*sentence, error) // calls readSentence once
	// activation returns the activation of the outputs of a head of classes.
	activation func() (activation, error)
}

// poolers are weights that are no part of the model, by their names in a plan.
type poolers map[string]*param.Param

// Open opens the model in the folder dir with zero Options. It returns an error if a file is
// missing, malformed or too large, if config.json has an unknown field, or if the weights do not
// agree with it.
func Open(dir string) (*Model, error) { return OpenWith(dir, Options{}) }

// OpenWith opens the published model, or the exchanged model that farfield exchange wrote, in the
// folder dir. It returns an error where Open does, for unknown options, and where
// model.Config.Exchanged does.
func OpenWith(dir string, o Options) (*Model, error) {
	if o.Positions != "" && o.Positions != Interpolate {
		return nil, fault.Mark(fault.ErrInput, fault.Fieldf[Options]("{Positions}: %q is not %q", o.Positions, Interpolate))
	}
	return open(dir, o, nil)
}

// open is openFolder with errors of bounded length.
func open(dir string, o Options, classes []string) (*Model, error) {
	m, err := openFolder(dir, o, classes)
	return m, infile.ShortenError(err)
}

// openFolder opens a folder with the head that it has, or unless classes is nil as a classifier of
// sequences.
func openFolder(dir string, o Options, classes []string) (*Model, error) {
	functions, err := exchanged.Open(dir)
	if err != nil {
		return nil, err
	}
	if functions != nil {
		dir = functions.Model()
		o.Positions = cmp.Or(o.Positions, functions.Calibration.Positions)
	}
	path := filepath.Join(dir, configFile)
	text, err := infile.ReadBounded(path, maxConfig)
	if err != nil {
		return nil, err
	}
	text, notes, err := dropFields(text, o.IgnoreFields)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	own := classes == nil || hasClasses(text, classes)
	if classes != nil {
		if text, err = headText(text, classes); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, adapterFile)); err == nil {
		return nil, fmt.Errorf("%s: its weights belong on top of another model's, which is not supported; merge them", filepath.Join(dir, adapterFile))
	}
	s, err := openSource(dir)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if classes == nil {
		var more []string
		if text, more, err = resolveHead(text, s); err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		notes = append(notes, more...)
	}
	family, p, err := readPlan(text, len(s.names))
	if err == nil && classes == nil && p.head == maskedHead && p.lacksHead(s.names) {
		family, p, err = readBody(text, len(s.names))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	p.canLackHead, p.hasOwnOutputs = classes != nil, own
	m := &Model{inputReader: inputReader{family: family, plan: p}, dir: dir, text: text, notes: notes, poolers: poolers{}}
	m.sentence = sync.OnceValues(func() (*sentence, error) {
		s, err := readSentence(dir, p.config.Width)
		return s, infile.ShortenError(err)
	})
	m.activation = sync.OnceValues(func() (activation, error) {
		a, err := m.readActivation()
		return a, infile.ShortenError(err)
	})
	if m.stored, err = p.match(s); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	m.notes = append(m.notes, s.notes()...)
	if len(s.scales) > 0 && o.Precision != nn.Int8 {
		m.notes = append(m.notes, fmt.Sprintf("%s: has weights of 8 bits, which are widened; precision int8 keeps them", s.files[0]))
	}
	if code := findCode(text); code != "" {
		m.notes = append(m.notes, fmt.Sprintf("%s: auto_map names code of the folder, %s, which is not executed: the model is %s of transformers", configFile, infile.Shorten(code), family))
	}
	if functions != nil {
		if p.config, err = functions.Configure(p.config); err != nil {
			return nil, err
		}
	}
	if o.Exchange != nil {
		if p.config, err = p.config.Exchanged(*o.Exchange); err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
	}
	if o.Positions == Interpolate {
		m.stretched.plan(p)
	}
	if m.body, err = model.NewUndrawn(p.config); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := m.body.Reserve(o.Precision); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if err := m.readWeights(s); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if functions != nil {
		if err := functions.Fill(m.body); err != nil {
			return nil, err
		}
		m.calibration = &functions.Calibration
	}
	if o.Exchange != nil {
		if err := m.body.SetNumbers(o.Exchange.Numbers); err != nil {
			return nil, fault.Fieldf[Options]("%s: {Exchange}: %w", dir, err)
		}
	}
	m.stretched.fill(m.body)
	m.passes.plan, m.passes.body, m.passes.stretched = p, m.body, &m.stretched
	m.texts = newTextReader(dir, p, text)
	if p.vision != nil {
		m.pictures = newPictureReader(dir, p.vision)
	}
	if p.config.Params() >= largeModel {
		// The collector would let the garbage of opening stay until the heap has doubled.
		debug.FreeOSMemory()
	}
	return m, nil
}

// largeModel is the number of weights from which the garbage of opening is returned to the
// system.
const largeModel = 1 << 24

// readWeights sets the parameters to the tensors of the files, without copies between.
func (m *Model) readWeights(s *source) error {
	seen := map[*weight]bool{} // of tensors with two names
	held := map[*weight]string{}
	var buffer []float32
	for _, x := range m.stored {
		w := x.weight
		if w == nil {
			continue
		}
		if len(w.parts) == 0 {
			data := make([]float32, 0, tensor.Size(x.shape...))
			err := s.visit(x.name, func(_ int, part []float32) error {
				data = append(data, part...)
				return nil
			})
			if err != nil {
				return err
			}
			m.poolers[w.name] = &param.Param{Name: x.name, Shape: x.shape, Data: data}
			continue
		}
		if compressed := compressedParts(m.body, w); compressed != nil {
			first, twice := held[w]
			if held[w] = x.name; twice {
				if err := s.compare(x.name, first); err != nil {
					return err
				}
			} else if err := m.readCompressed(s, &x, compressed); err != nil {
				return err
			}
			continue
		}
		parts, err := m.partData(w, func(p *param.Param) []float32 { return p.Data })
		if err != nil {
			return err
		}
		if seen[w] {
			buffer = make([]float32, readElements)
		}
		if !seen[w] && w.isWhole(parts) {
			if err := s.read(x.name, parts[0]); err != nil {
				return err
			}
			seen[w] = true
			continue
		}
		err = s.visit(x.name, func(start int, data []float32) error {
			if !seen[w] {
				w.move(data, start, parts, false)
			} else if w.move(buffer[:len(data)], start, parts, true); !slices.Equal(buffer[:len(data)], data) {
				return differs(x.name)
			}
			return nil
		})
		if err != nil {
			return err
		}
		seen[w] = true
	}
	return nil
}

// partData returns the slices of data that take selects from the parameters of a weight.
func (m *Model) partData(w *weight, take func(p *param.Param) []float32) ([][]float32, error) {
	if name := w.parts[0]; m.stretched.rows > 0 && name == positionName {
		p, err := m.body.Params().Get(name)
		if err != nil {
			return nil, err
		}
		return [][]float32{take(p)[:m.stretched.rows*p.Shape[1]]}, nil
	}
	params, err := w.params(m.body)
	if err != nil {
		return nil, err
	}
	parts := make([][]float32, len(params))
	for i, p := range params {
		parts[i] = take(p)
	}
	return parts, nil
}

// Family returns the model_type of config.json.
func (m *Model) Family() string { return m.family }

// Config returns the configuration of the model.
func (m *Model) Config() model.Config { return m.body.Config() }

// Model returns the model of package model. If its weights are changed, Forward and Save change,
// too. The outputs of a body without a head are not the family's. After the first call of Model,
// short inputs no longer use packed weights.
func (m *Model) Model() *model.Model {
	m.passes.thaw()
	return m.body
}

// HasLogits reports whether the model has a head.
func (m *Model) HasLogits() bool { return m.plan.scores }

// Names returns the names of the weights that were read, in the order of the files.
func (m *Model) Names() []string {
	var names []string
	for _, x := range m.stored {
		if x.weight != nil {
			names = append(names, x.name)
		}
	}
	return names
}
