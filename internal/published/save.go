package published

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/safetensors"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/param"
)

// companions are files of a folder that Save copies as they are, beside the tokenizer.
var companions = append([]string{
	"generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt", "chat_template.jinja",
	"preprocessor_config.json", "modules.json", sentenceFile,
}, lengthFiles...)

// Save writes the model to the folder dir, which transformers loads to the same outputs. Weights
// have the names of the folder that was opened; its configuration and tokenizer are copied. If no
// weight of a file has changed, the file is copied byte by byte. If a weight has changed, all are
// written to one file in float32. Save creates dir if it does not exist.
//
// Weights in fewer bits (Options.Precision) are written as they are held: in 16 bits as BF16, in 8
// bits as I8 with scales, which transformers does not load. OpenWith reads them unchanged with the
// same precision; without it, it widens weights of 8 bits.
//
// Save returns an error if dir has weights, tokenizer files or files beside them that the opened
// folder lacks, if a file cannot be written, if the opened folder can no longer be read or its
// tensors have other shapes, or if a layer has another function than the folder's
// (Options.Exchange). It also returns the error of model.Model.CheckMechanisms.
func (m *Model) Save(dir string) error {
	m.passes.use.RLock()
	defer m.passes.use.RUnlock()
	if err := checkWritable(m.body); err != nil {
		return err
	}
	s, err := openSource(m.dir)
	if err != nil {
		return err
	}
	defer s.close()
	changed := m.body.Precision() != nn.Float32 || len(s.scales) > 0
	if !changed {
		changed, err = m.changed(s)
	}
	if err != nil {
		return err
	}
	err = checkTarget(dir, func(name string) bool {
		_, err := os.Stat(filepath.Join(m.dir, name))
		switch file := fileOf(m.body.Precision()); {
		case !changed || name != weightsFile && name != bytesFile && name != indexFile:
			return err == nil
		case name == indexFile: // a file of all weights comes before it
			return err == nil && file == weightsFile
		default:
			return name == file
		}
	})
	if err != nil {
		return err
	}
	if err := CheckSides(m.dir); err != nil {
		return err
	}
	if err := atomicfile.MakeFolder(dir); err != nil {
		return err
	}
	config := m.text
	if changed {
		if err := m.writeWeights(dir, s); err != nil {
			return err
		}
		if config, err = setPrecision(m.text, m.body.Precision()); err != nil {
			return err
		}
	} else {
		files := slices.Clone(s.files)
		if s.listed != nil {
			files = append(files, indexFile)
		}
		for _, name := range files {
			if err := copyFile(m.dir, dir, name); err != nil {
				return err
			}
		}
	}
	if err := copyCompanions(m.dir, dir); err != nil {
		return err
	}
	return atomicfile.WriteBytes(filepath.Join(dir, configFile), config)
}

// checkWritable returns an error if a layer has an exchanged function or one that WrapMechanisms set,
// which no family has.
func checkWritable(m *model.Model) error {
	if err := m.CheckMechanisms(); err != nil {
		return err
	}
	for i, x := range m.Config().LayerMechanisms {
		if x.Mechanism != "" {
			return fmt.Errorf("layers.%d.attn: has mechanism %s in place of the layer's own function, which no family of published transformers has; write the model by Save of package model", i, x.Mechanism)
		}
	}
	return nil
}

// checkTarget returns an error if a folder has a file of a model that is not written: the folder
// would mix two models.
func checkTarget(dir string, isWritten func(name string) bool) error {
	for _, name := range slices.Concat([]string{weightsFile, indexFile, bytesFile}, companions, tokenizerFiles) {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil && !isWritten(name) {
			return fmt.Errorf("%s: has %s, which this model does not have; name a new folder", dir, name)
		}
	}
	return nil
}

// errChanged ends the reading of a tensor that a weight differs from.
var errChanged = errors.New("changed")

// changed reports whether a weight differs from its tensor. It returns an error if a tensor is
// missing or has another shape than when the folder was opened.
func (m *Model) changed(s *source) (bool, error) {
	for _, x := range m.stored {
		if _, has := s.index[x.name]; !has {
			return false, fmt.Errorf("%s: %s is not there any more", m.dir, x.name)
		}
		_, shape, err := s.header(x.name)
		if err != nil {
			return false, err
		}
		if !slices.Equal(shape, x.shape) {
			return false, fmt.Errorf("%s: %s has shape %v, it was opened with %v", m.dir, x.name, shape, x.shape)
		}
	}
	for _, x := range m.stored {
		if x.weight == nil {
			continue
		}
		now, err := m.tensor(&x)
		if err != nil {
			return false, err
		}
		err = s.visit(x.name, func(start int, old []float32) error {
			if !slices.Equal(old, now[start:][:len(old)]) {
				return errChanged
			}
			return nil
		})
		if errors.Is(err, errChanged) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// tensor returns the elements of a tensor of the file.
func (m *Model) tensor(x *stored) ([]float32, error) {
	w := x.weight
	if len(w.parts) == 0 {
		return m.poolers[w.name].Data, nil
	}
	parts, err := m.partData(w, func(p *param.Param) []float32 { return p.Data })
	if err != nil {
		return nil, err
	}
	n := 1
	for _, d := range x.shape {
		n *= d
	}
	data := make([]float32, n)
	w.move(data, 0, parts, true)
	return data, nil
}

// writeWeights writes all tensors of the files, weights in float32 or as they are held.
func (m *Model) writeWeights(dir string, s *source) error {
	var list []fileTensor
	written := map[*weight]bool{}
	for i := range m.stored {
		x := &m.stored[i]
		if x.weight == nil {
			d := x.dtype
			if d == array.F2 || d == array.BF16 {
				d = array.F4
			}
			list = append(list, fileTensor{x.name, d, x.shape, func() (*array.Array, error) { return s.open[s.index[x.name]].ReadArray(x.name) }})
			continue
		}
		if parts := compressedParts(m.body, x.weight); parts != nil {
			if !written[x.weight] { // the others are its copies
				list = append(list, compressedTensors(x.name, x.weight, parts)...)
			}
			written[x.weight] = true
			continue
		}
		list = append(list, numbersTensor(x.name, x.shape, m.body.Precision(), func() ([]float32, error) { return m.tensor(x) }))
	}
	return writeTensors(filepath.Join(dir, fileOf(m.body.Precision())), list)
}

// fileOf returns the name of the file of weights of a precision.
func fileOf(p nn.Precision) string {
	if p == nn.Int8 {
		return bytesFile
	}
	return weightsFile
}

// fileTensor is a tensor to write, which get makes.
type fileTensor struct {
	name  string
	dtype array.DType
	shape []int
	get   func() (*array.Array, error)
}

// writeTensors writes a file of tensors, which are made one at a time.
func writeTensors(path string, list []fileTensor) error {
	heads := make([]*array.Array, len(list))
	for i, x := range list {
		heads[i] = &array.Array{Name: x.name, DType: x.dtype, Shape: x.shape}
	}
	header, err := safetensors.EncodeHeader(heads, map[string]string{"format": "pt"})
	if err != nil {
		return err
	}
	return atomicfile.Write(path, func(w io.Writer) error {
		if _, err := w.Write(header); err != nil {
			return err
		}
		for _, x := range list {
			a, err := x.get()
			if err != nil {
				return err
			}
			if err := a.Encode(w); err != nil {
				return err
			}
		}
		return nil
	})
}

// setPrecision returns config.json with the type of the weights.
func setPrecision(text []byte, p nn.Precision) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, err
	}
	name := `"float32"`
	if p == nn.BFloat16 {
		name = `"bfloat16"`
	}
	for _, field := range []string{"dtype", "torch_dtype"} {
		if _, has := members[field]; has {
			members[field] = json.RawMessage(name)
		}
	}
	delete(members, quantizationField)
	if p == nn.Int8 {
		members[quantizationField] = json.RawMessage(`{"quant_method": "farfield", "bits": 8}`)
	}
	text, err := json.MarshalIndent(members, "", "  ")
	return append(text, '\n'), err
}

// copyCompanions copies the files beside weights and configuration that exist.
func copyCompanions(from, dir string) error {
	for _, name := range slices.Concat(companions, tokenizerFiles) {
		if err := copyFile(from, dir, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	modules, err := readModules(from)
	if err != nil {
		return err
	}
	for _, x := range modules {
		if x.Path == "" {
			continue
		}
		if err := atomicfile.MakeFolder(filepath.Join(dir, x.Path)); err != nil {
			return err
		}
		if err := copyFile(from, dir, filepath.Join(x.Path, configFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// CheckSides returns an error unless the files beside the weights and the configuration of the
// folder dir can be copied: each must be a regular file or absent. Save, WriteLike and
// CopyDescription check this before they write anything.
func CheckSides(dir string) error {
	modules, err := readModules(dir)
	if err != nil {
		return err
	}
	names := slices.Concat(companions, tokenizerFiles)
	for _, x := range modules {
		names = append(names, filepath.Join(x.Path, configFile))
	}
	for _, name := range names {
		f, err := infile.Open(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		f.Close()
	}
	return nil
}

// copyFile copies a file between folders. The file may be its own copy.
func copyFile(from, to, name string) error {
	source, target := filepath.Join(from, name), filepath.Join(to, name)
	r, err := infile.Open(source)
	if err != nil {
		return err
	}
	defer r.Close()
	if a, err := r.Stat(); err == nil {
		if b, err := os.Stat(target); err == nil && os.SameFile(a, b) {
			return nil
		}
	}
	return atomicfile.Write(target, func(w io.Writer) error {
		_, err := io.Copy(w, r)
		return err
	})
}
