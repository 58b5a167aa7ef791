package published

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/exchanged"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/safetensors"
)

// The names of files in a folder.
const (
	configFile  = "config.json"
	weightsFile = "model.safetensors"
	indexFile   = "model.safetensors.index.json"
	// bytesFile has weights of 8 bits that Save writes. Under its own name nobody takes the integers
	// for weights.
	bytesFile = "model.int8.safetensors"

	maxIndex  = 64 << 20
	maxShards = 4096
)

// source is the tensors of a folder: of one file, or of the files of an index.
type source struct {
	files []string // names in the folder
	open  []*safetensors.File
	index map[string]int // of the file of each tensor
	names []string       // in the order of the files

	unlisted map[string]bool   // tensors that the index does not list
	listed   map[string]string // file of each tensor that the index lists; nil: there is no index
	lost     []string          // files that the index lists and the folder lacks

	scales map[string]string // of tensors of I8, the names of their scales

	scaled string // tensor of I8 whose scales were read last
	scale  []float32

	buffer []float32 // of visit
}

// openSource opens the tensors of a folder. It returns an error if there are none, or a file
// is malformed. A file of the index that the folder lacks is an error of match, if its tensors are
// needed.
func openSource(dir string) (s *source, err error) {
	s = &source{index: map[string]int{}, unlisted: map[string]bool{}}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	name := weightsFile
	f, err := safetensors.Open(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		if _, none := os.Stat(filepath.Join(dir, indexFile)); none != nil {
			if g, other := safetensors.Open(filepath.Join(dir, bytesFile)); !errors.Is(other, fs.ErrNotExist) {
				name, f, err = bytesFile, g, other
			}
		}
	}
	switch {
	case err == nil:
		s.files, s.open = []string{name}, []*safetensors.File{f}
	case !errors.Is(err, fs.ErrNotExist):
		return s, err
	default:
		if s.listed, err = readIndex(dir); err != nil {
			return s, err
		}
		shards, err := listShards(s.listed)
		if err != nil {
			return s, fmt.Errorf("%s: %w", filepath.Join(dir, indexFile), err)
		}
		for _, name := range shards {
			f, err := safetensors.Open(filepath.Join(dir, name))
			if errors.Is(err, fs.ErrNotExist) {
				s.lost = append(s.lost, name)
				continue
			}
			if err != nil {
				return s, err
			}
			s.files, s.open = append(s.files, name), append(s.open, f)
		}
		if len(s.files) == 0 {
			return s, fmt.Errorf("%s: has none of the files that it lists, such as %s", filepath.Join(dir, indexFile), s.lost[0])
		}
	}
	for i, f := range s.open {
		for _, name := range f.Names() {
			file, isListed := s.listed[name]
			if isListed && file != s.files[i] { // the index names the file that counts
				continue
			}
			if _, twice := s.index[name]; twice {
				return s, fmt.Errorf("%s: %s has a tensor of another file", name, s.files[i])
			}
			s.unlisted[name] = s.listed != nil && !isListed
			s.index[name] = i
			s.names = append(s.names, name)
		}
	}
	return s, s.findScales()
}

// listShards returns the files that hold the tensors of an index, in order. It returns an error
// if there are more than maxShards.
func listShards(listed map[string]string) ([]string, error) {
	files := map[string]bool{}
	for _, file := range listed {
		if files[file] = true; len(files) > maxShards {
			return nil, fmt.Errorf("weight_map: names more than the %d files that are read", maxShards)
		}
	}
	return slices.Sorted(maps.Keys(files)), nil
}

// readIndex returns the file of each tensor. File names stay in the folder.
func readIndex(dir string) (map[string]string, error) {
	path := filepath.Join(dir, indexFile)
	text, err := infile.ReadBounded(path, maxIndex)
	if errors.Is(err, fs.ErrNotExist) {
		if other := findPickle(dir); other != "" {
			return nil, fmt.Errorf("%s: pickles can execute code and are not read; convert %s to %s", filepath.Join(dir, other), other, weightsFile)
		}
		return nil, fmt.Errorf("%s: has neither %s nor %s", dir, weightsFile, indexFile)
	}
	if err != nil {
		return nil, err
	}
	listed, err := parseIndex(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return listed, nil
}

// findPickle returns the name of a file of weights that is not read; "": none.
func findPickle(dir string) string {
	for _, pattern := range []string{"pytorch_model*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt"} {
		if found, _ := fs.Glob(os.DirFS(dir), pattern); len(found) > 0 {
			return found[0]
		}
	}
	return ""
}

// parseIndex reads an index of files.
func parseIndex(text []byte) (map[string]string, error) {
	f, err := parseFields(text)
	if err != nil {
		return nil, err
	}
	listed := map[string]string{}
	if !f.decode("weight_map", "an object of file names", &listed) {
		f.fail("weight_map", "is missing")
		return nil, f.err
	}
	if len(listed) == 0 {
		return nil, errors.New("weight_map: is empty")
	}
	for name, file := range listed {
		if filepath.Base(file) != file || !strings.HasSuffix(file, ".safetensors") || strings.ContainsAny(file, `/\`) {
			return nil, fmt.Errorf("weight_map: %s has file %q, a name of the folder with .safetensors is needed", infile.Shorten(name), infile.Shorten(file))
		}
	}
	return listed, nil
}

func (s *source) close() {
	for _, f := range s.open {
		f.Close()
	}
}

// header returns the type and shape of a tensor.
func (s *source) header(name string) (array.DType, []int, error) {
	return s.open[s.index[name]].ReadHeader(name)
}

// readElements is the number of elements of a tensor that are read at a time.
const readElements = 1 << 16

// visit calls f with the elements of a tensor as float32, a part at a time, and the number
// of each part's first element. It returns an error if f does, the type is not a floating-point
// type, or an element is not finite.
func (s *source) visit(name string, f func(start int, x []float32) error) error {
	s.buffer = slices.Grow(s.buffer[:0], readElements)
	return s.readParts(name, func(_, n int) []float32 { return s.buffer[:n] }, f)
}

// read sets dst to the elements of a tensor, where they stay. It returns an error where visit
// does.
func (s *source) read(name string, dst []float32) error {
	return s.readParts(name, func(start, n int) []float32 { return dst[start:][:n] }, func(int, []float32) error { return nil })
}

// readParts reads a tensor a part at a time, to the memory that room returns for n elements from
// start on, and calls f with each part.
func (s *source) readParts(name string, room func(start, n int) []float32, f func(start int, x []float32) error) error {
	a, err := s.open[s.index[name]].OpenStored(name)
	if err != nil {
		return err
	}
	n, err := array.CountElements(a.Shape)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for start := 0; start < n; start += readElements {
		x := room(start, min(readElements, n-start))
		if err := s.readNumbers(a, x, start); err != nil {
			return err
		}
		if err := checkFinite(name, start, x); err != nil {
			return err
		}
		if err := f(start, x); err != nil {
			return err
		}
	}
	return nil
}

// reduce returns a name of a tensor without the prefix, in today's spelling.
func (p *plan) reduce(name string) string {
	name = strings.TrimPrefix(name, p.prefix+".")
	if rest, old := strings.CutSuffix(name, ".gamma"); old {
		return rest + ".weight"
	}
	if rest, old := strings.CutSuffix(name, ".beta"); old {
		return rest + ".bias"
	}
	return name
}

// isBuffer reports whether a reduced name is a table that the model makes itself.
func isBuffer(name string) bool {
	for _, end := range []string{"embeddings.position_ids", "rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias", "embeddings.token_type_ids"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// stored is a tensor of the files and what it is for.
type stored struct {
	name   string  // in the file
	weight *weight // nil: not read
	dtype  array.DType
	shape  []int
}

// lacksHead reports whether the plan has weights of a head, and the files none of them. Embedding
// models keep the architecture of the model that they began from.
func (p *plan) lacksHead(names []string) bool {
	lacks := false
	for i := range p.weights {
		w := &p.weights[i]
		if !w.isOfHead() {
			continue
		}
		lacks = true
		for _, name := range names {
			if key := p.reduce(name); key == w.name || slices.Contains(w.aliases, key) {
				return false
			}
		}
	}
	return lacks
}

// match finds the tensors of the plan's weights. It returns an error if one is missing,
// unknown or misshapen.
func (p *plan) match(s *source) ([]stored, error) {
	byName := map[string]int{} // of stored
	list := make([]stored, len(s.names))
	for i, name := range s.names {
		key := p.reduce(name)
		if at, twice := byName[key]; twice {
			return nil, fmt.Errorf("%s: is another name of %s", infile.Shorten(name), infile.Shorten(s.names[at]))
		}
		byName[key] = i
		dtype, shape, err := s.header(name)
		if err != nil {
			return nil, err
		}
		list[i] = stored{name: name, dtype: dtype, shape: shape}
	}
	for i := range p.weights {
		w := &p.weights[i]
		found := false
		for _, name := range append([]string{w.name}, w.aliases...) {
			at, has := byName[name]
			if !has {
				continue
			}
			fits := slices.Equal(list[at].shape, w.shape)
			if p.canLackHead && w.isOfHead() && (!fits || !p.hasOwnOutputs && w.isOutputs()) {
				continue
			}
			if !fits {
				return nil, fmt.Errorf("%s: shape is %v, the configuration needs %v", list[at].name, list[at].shape, w.shape)
			}
			list[at].weight, found = w, true
		}
		if w.isNew = !found && p.canLackHead && w.isOfHead(); !found && !w.optional && !w.isNew {
			return nil, s.missing(p.fileName(w.name))
		}
	}
	for _, x := range list {
		key := p.reduce(x.name)
		if x.weight == nil && strings.HasPrefix(key, "qa_outputs.") {
			return nil, fmt.Errorf("%s: is of a head that answers questions, which is not supported", x.name)
		}
		if x.weight == nil && !isBuffer(key) && !s.unlisted[x.name] && !p.isUnused(key) {
			return nil, fmt.Errorf("%s: the tensor is unknown here", infile.Shorten(x.name))
		}
	}
	return list, nil
}

// isUnused reports whether the architecture leaves out a tensor of a reduced name.
func (p *plan) isUnused(key string) bool {
	return slices.ContainsFunc(p.unused, func(start string) bool { return strings.HasPrefix(key, start) })
}

// missing returns the error for a tensor that the files lack.
func (s *source) missing(name string) error {
	for listed, file := range s.listed {
		if !strings.HasSuffix(listed, name) && !strings.HasSuffix(name, listed) {
			continue
		}
		if slices.Contains(s.lost, file) {
			return fmt.Errorf("%s: the index names %s, which is missing: no such file", name, file)
		}
		return fmt.Errorf("%s: the index names %s, which does not have it", name, file)
	}
	return fmt.Errorf("%s: is missing", name)
}

// notes says what the index and the files of the folder differ in.
func (s *source) notes() (notes []string) {
	if len(s.lost) > 0 {
		notes = append(notes, fmt.Sprintf("%s: lists %s, which is missing; no tensor of the model is there", indexFile, infile.Shorten(strings.Join(s.lost, ", "))))
	}
	var extra []string
	for _, name := range s.names {
		if s.unlisted[name] {
			extra = append(extra, name)
		}
	}
	if len(extra) > 0 {
		notes = append(notes, fmt.Sprintf("%s: does not list %s, which the files have", indexFile, infile.Shorten(strings.Join(extra, ", "))))
	}
	return notes
}

// isOfHead reports whether a weight is of the outputs or of the units before them.
func (w *weight) isOfHead() bool { return len(w.parts) > 0 && strings.HasPrefix(w.parts[0], "head") }

// isOutputs reports whether a weight is of the outputs.
func (w *weight) isOutputs() bool { return len(w.parts) > 0 && strings.HasPrefix(w.parts[0], "head.") }

// headNames are the beginnings of names that have no prefix.
var headNames = []string{"classifier.", "cls.", "lm_head.", "pre_classifier.", "vocab_", "score.", "embed_out.", "final_logits_bias", "head.", "decoder.weight", "decoder.bias"}

// fileName returns the name of a weight in new files.
func (p *plan) fileName(name string) string {
	if !p.written || slices.ContainsFunc(headNames, func(start string) bool { return strings.HasPrefix(name, start) }) {
		return name
	}
	return p.prefix + "." + name
}

// IsFolder reports whether dir has a config.json with a model_type, as folders in the Hugging Face
// layout have, or is an exchanged model of such a folder. Open may still refuse it.
func IsFolder(dir string) bool {
	dir = exchanged.Resolve(dir)
	var c map[string]json.RawMessage
	if infile.ReadJSON(filepath.Join(dir, configFile), maxConfig, &c) != nil {
		return false
	}
	_, kind := c["model_type"]
	_, classes := c["architectures"]
	return kind || classes
}
