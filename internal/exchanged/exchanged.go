// Package exchanged reads and writes the folder of a trained model whose layers have another
// attention function than they were trained with. The folder has the trained model, untouched, in
// the folder model, the functions of its layers in exchange.json, and their numbers in
// exchange.safetensors. It has no config.json of its own, which another program would read as the
// model that it describes.
package exchanged

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/safetensors"
	"github.com/farfield-ml/farfield/internal/strict"
	"github.com/farfield-ml/farfield/model"
)

const (
	// ManifestFile names the functions of the layers.
	ManifestFile = "exchange.json"
	// NumbersFile has the parameters of the functions, under their names in the model.
	NumbersFile = "exchange.safetensors"
	// PageFile is the page that describes the exchange.
	PageFile = "exchange.md"
	// ModelFolder is the folder of the trained model.
	ModelFolder = "model"
	// Interpolate is a value of Calibration.Positions.
	Interpolate = "interpolate"

	format      = "farfield exchange"
	version     = 1
	maxManifest = 16 << 20
	maxNumbers  = 1 << 34 // bytes of NumbersFile
	maxLayers   = 1 << 16
)

// Manifest is the content of ManifestFile.
type Manifest struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Config is the SHA-256 of config.json of the trained model.
	Config string `json:"config_sha256"`
	// Files lists the files of the trained model and their sizes.
	Files map[string]int64 `json:"files"`
	// Numbers is the SHA-256 of NumbersFile.
	Numbers string `json:"numbers_sha256"`
	// Layers lists the functions of the layers. A layer without a mechanism keeps its own.
	Layers      []model.LayerMechanism `json:"layers"`
	Calibration Calibration            `json:"calibration"`
	// Sum is the SHA-256 of the manifest with an empty Sum.
	Sum string `json:"sha256"`
}

// Calibration describes the texts and choices from which the numbers were made.
type Calibration struct {
	Tokens int    `json:"tokens"` // tokens whose keys made the codebooks
	Window int    `json:"window"` // tokens in a pass
	Length int    `json:"length"` // tokens of a sequence for which the cost was counted
	Seed   uint64 `json:"seed"`
	// Positions is Interpolate if learned positions were interpolated for the length of a pass. The
	// model is opened with them.
	Positions string `json:"positions,omitempty"`
	// Distances holds root mean square distances of keys from their nearest centres, on held-out
	// texts: by the name of a layer, one for each key head.
	Distances map[string][]float64 `json:"distances,omitempty"`
	// Largest is the largest such distance in a single held-out window, as a multiple of
	// Distances, averaged over key heads; 0: not known.
	Largest float64 `json:"largest_distance,omitempty"`
	// WildShares holds, by the name of a layer of order 1 or 2, the mean share of the weight of a query
	// that lies on wild weights (attention.Diagnosis), on a held-out text.
	WildShares map[string]float64 `json:"wild_shares,omitempty"`
	// Measure is cosine or nats. The fields after it are in this measure: of the model on held-out
	// texts, of the same model with near keys alone, and of both on texts of another kind.
	Measure     string   `json:"measure"`
	Value       float64  `json:"value"`
	NearAlone   float64  `json:"near_alone"`
	Other       *float64 `json:"other_texts,omitempty"`
	OtherNear   *float64 `json:"other_texts_near_alone,omitempty"`
	ExactLayers int      `json:"exact_layers"` // layers that keep their own function although they could have another
}

// Folder is the open folder of an exchanged model.
type Folder struct {
	Manifest
	dir     string
	numbers map[string]numbers
}

// numbers is an array of NumbersFile.
type numbers struct {
	shape []int
	data  []float32
}

// Is reports whether dir has the manifest of an exchanged model. Open may still refuse the folder.
func Is(dir string) bool {
	var m struct {
		Format string `json:"format"`
	}
	return infile.ReadJSON(filepath.Join(dir, ManifestFile), maxManifest, &m) == nil && m.Format == format
}

// Resolve returns the folder of the trained model if dir is an exchanged model, and dir otherwise.
func Resolve(dir string) string {
	if Is(dir) {
		return filepath.Join(dir, ModelFolder)
	}
	return dir
}

// Open opens the folder of an exchanged model. It returns nil if dir has no manifest of one, and an
// error if a file is missing, malformed, damaged or of another version.
func Open(dir string) (*Folder, error) {
	if !Is(dir) {
		return nil, nil
	}
	path := filepath.Join(dir, ManifestFile)
	text, err := infile.ReadBounded(path, maxManifest)
	if err != nil {
		return nil, err
	}
	m, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f := &Folder{Manifest: *m, dir: dir}
	if err := f.checkModel(); err != nil {
		return nil, err
	}
	path = filepath.Join(dir, NumbersFile)
	if f.numbers, err = readNumbers(path, m.Numbers); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// parse reads the text of a manifest. It returns an error if it is malformed, damaged or of another
// version.
func parse(text []byte) (*Manifest, error) {
	m := &Manifest{}
	// The version comes first: another one may have other fields.
	var head struct{ Version int }
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, err
	}
	if head.Version != version {
		return nil, fmt.Errorf("version: is %d, this program reads %d", head.Version, version)
	}
	if err := strict.Unmarshal(text, m); err != nil {
		return nil, err
	}
	sum, err := m.sum()
	switch {
	case err != nil:
		return nil, err
	case m.Format != format:
		return nil, fmt.Errorf("format: is %q, needs %q", infile.Shorten(m.Format), format)
	case sum != m.Sum:
		return nil, fmt.Errorf("sha256: is %q, the other fields have %q: the file was changed or is damaged; farfield exchange writes it", infile.Shorten(m.Sum), sum)
	case m.Calibration.Positions != "" && m.Calibration.Positions != Interpolate:
		return nil, fmt.Errorf("calibration: positions: %q is not %q", infile.Shorten(m.Calibration.Positions), Interpolate)
	case len(m.Layers) > maxLayers:
		return nil, fmt.Errorf("layers: are %d, at most %d are possible", len(m.Layers), maxLayers)
	}
	for name, size := range m.Files {
		if !filepath.IsLocal(filepath.FromSlash(name)) || size < 0 {
			return nil, fmt.Errorf("files: %q of %d bytes is no file of the folder", infile.Shorten(name), size)
		}
	}
	if x := m.Calibration.Largest; !(x >= 0) || math.IsInf(x, 0) {
		return nil, fmt.Errorf("calibration: largest_distance: %v is no distance", x)
	}
	for name, list := range m.Calibration.Distances {
		for _, x := range list {
			if !(x >= 0) || math.IsInf(x, 0) {
				return nil, fmt.Errorf("calibration: distances of %q: %v is no distance", infile.Shorten(name), x)
			}
		}
	}
	return m, nil
}

// sum returns the SHA-256 of the manifest in which Sum is empty.
func (m Manifest) sum() (string, error) {
	m.Sum = ""
	text, err := json.Marshal(m)
	return hashOf(text), err
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// checkModel returns an error if the trained model is not the one of the manifest.
func (f *Folder) checkModel() error {
	inner := filepath.Join(f.dir, ModelFolder)
	for _, name := range slices.Sorted(maps.Keys(f.Files)) {
		path := filepath.Join(inner, filepath.FromSlash(name))
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.Size() != f.Files[name] {
			return fmt.Errorf("%s: has %d bytes, %s says %d: it is another model's", path, info.Size(), ManifestFile, f.Files[name])
		}
	}
	text, err := infile.ReadFile(filepath.Join(inner, "config.json"))
	if err != nil {
		return err
	}
	if sum := hashOf(text); sum != f.Config {
		return fmt.Errorf("%s: its SHA-256 is %.12s…, %s says %.12s…: it is another model's", filepath.Join(inner, "config.json"), sum, ManifestFile, f.Config)
	}
	return nil
}

// readNumbers reads a file of numbers whose SHA-256 is known.
func readNumbers(path, sum string) (map[string]numbers, error) {
	r, err := infile.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(r, maxNumbers+1))
	if err != nil {
		return nil, err
	}
	if n > maxNumbers {
		return nil, fmt.Errorf("has more than %d bytes", int64(maxNumbers))
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != sum {
		return nil, fmt.Errorf("its SHA-256 is %.12s…, %s says %.12s…: it is damaged", got, ManifestFile, sum)
	}
	return decodeNumbers(r, n)
}

// decodeNumbers reads the arrays of a safetensors file of size bytes. It returns an error if one is
// not float32 or has a number that is not finite.
func decodeNumbers(r io.ReaderAt, size int64) (map[string]numbers, error) {
	f, err := safetensors.New(r, size)
	if err != nil {
		return nil, err
	}
	list := map[string]numbers{}
	for _, name := range f.Names() {
		a, err := f.ReadArray(name)
		if err != nil {
			return nil, err
		}
		if a.DType != array.F4 {
			return nil, fmt.Errorf("%s: is %v, needs float32", infile.Shorten(name), a.DType)
		}
		data, err := a.Float32()
		if err != nil {
			return nil, err
		}
		for i, x := range data {
			if x-x != 0 {
				return nil, fmt.Errorf("%s: element %d is %v", infile.Shorten(name), i, x)
			}
		}
		list[name] = numbers{a.Shape, data}
	}
	return list, nil
}

// Model returns the path of the trained model's folder.
func (f *Folder) Model() string { return filepath.Join(f.dir, ModelFolder) }

// Configure returns the configuration of the trained model with the functions of the folder. It
// returns an error if the model cannot have them.
func (f *Folder) Configure(c model.Config) (model.Config, error) {
	c = c.Clone()
	if len(f.Layers) != c.Layers {
		return c, fmt.Errorf("%s: layers: are %d, the model has %d", filepath.Join(f.dir, ManifestFile), len(f.Layers), c.Layers)
	}
	c.LayerMechanisms = make([]model.LayerMechanism, len(f.Layers))
	changed := false
	for i, x := range f.Layers {
		c.LayerMechanisms[i] = model.LayerMechanism{Mechanism: x.Mechanism, Order: x.Order, Set: maps.Clone(x.Set)}
		changed = changed || x.Mechanism != ""
	}
	if !changed {
		c.LayerMechanisms = nil
	}
	if err := c.Validate(); err != nil {
		return c, fmt.Errorf("%s: %w", filepath.Join(f.dir, ManifestFile), fault.InFile(err))
	}
	return c, nil
}

// Fill sets the numbers of the functions that the layers of m still have. It returns an error if
// one of them is missing or has another shape.
func (f *Folder) Fill(m *model.Model) error {
	list, err := f.numbersOf(m)
	if err == nil {
		err = m.SetNumbers(list)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(f.dir, NumbersFile), err)
	}
	return nil
}

// numbersOf returns the numbers of the functions that the layers of m still have, by their names. It
// returns an error if one of them is missing or has another shape.
func (f *Folder) numbersOf(m *model.Model) (map[string][]float32, error) {
	list := map[string][]float32{}
	now := m.Config().Mechanisms()
	for i, x := range f.Layers {
		if x.Mechanism == "" || i >= len(now) || now[i].Mechanism != x.Mechanism {
			continue
		}
		for _, own := range []string{"codebook", "tilt"} {
			// With other settings the mechanism may do without numbers.
			name := fmt.Sprintf("layers.%d.attn.%s", i, own)
			p, err := m.Constants().Get(name)
			if err != nil {
				if p, err = m.Params().Get(name); err != nil {
					continue
				}
			}
			x, found := f.numbers[name]
			if !found {
				return nil, fmt.Errorf("%s: is missing", name)
			}
			if !slices.Equal(x.shape, p.Shape) {
				return nil, fmt.Errorf("%s: has the shape %v, the model's function has %v", name, x.shape, p.Shape)
			}
			list[name] = x.data
		}
	}
	return list, nil
}

// Apply returns the trained model m with the functions of the folder. It returns an error if the
// model cannot have them, or one of their numbers is missing or has another shape.
func (f *Folder) Apply(m *model.Model) (*model.Model, error) {
	for _, group := range f.groups() {
		var err error
		if m, err = m.Exchanged(group); err != nil {
			return nil, fmt.Errorf("%s: %w", f.dir, err)
		}
	}
	if _, err := f.numbersOf(m); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(f.dir, NumbersFile), err)
	}
	return m, nil
}

// groups returns the exchanges that the layers have, each with the layers of equal settings.
func (f *Folder) groups() (list []model.Exchange) {
	for i, x := range f.Layers {
		if x.Mechanism == "" {
			continue
		}
		at := slices.IndexFunc(list, func(y model.Exchange) bool {
			return y.Mechanism == x.Mechanism && y.Order == x.Order && maps.Equal(y.Set, x.Set)
		})
		if at < 0 {
			at = len(list)
			list = append(list, model.Exchange{Mechanism: x.Mechanism, Order: x.Order, Set: x.Set, Layers: []int{}, Numbers: map[string][]float32{}})
		}
		list[at].Layers = append(list[at].Layers, i)
		for name, x := range f.numbers {
			if strings.HasPrefix(name, fmt.Sprintf("layers.%d.attn.", i)) {
				list[at].Numbers[name] = x.data
			}
		}
	}
	return list
}

// Write writes the exchanged model of the folder trained to the new folder dir: with the functions
// of the manifest m, their parameters numbers, and other files texts by name. The folder appears
// only when it is complete and on disk. Write returns an error if dir exists, or if a file cannot
// be read or written.
func Write(dir, trained string, m Manifest, numbers []*array.Array, texts map[string][]byte) (err error) {
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return cmp.Or(err, fmt.Errorf("%s: exists already; name a new folder", dir))
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if err := atomicfile.MakeFolder(parent); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(parent, "."+filepath.Base(dir)+".tmp-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(temp)
		}
	}()
	if err := os.Chmod(temp, 0o755); err != nil {
		return err
	}
	m.Format, m.Version, m.Files = format, version, map[string]int64{}
	inner := filepath.Join(temp, ModelFolder)
	if err := copyFolder(inner, trained, "", m.Files); err != nil {
		return err
	}
	config, err := infile.ReadFile(filepath.Join(inner, "config.json"))
	if err != nil {
		return err
	}
	m.Config = hashOf(config)
	h := sha256.New()
	if err := atomicfile.Write(filepath.Join(temp, NumbersFile), func(w io.Writer) error {
		return safetensors.Write(io.MultiWriter(w, h), numbers, nil)
	}); err != nil {
		return err
	}
	m.Numbers = hex.EncodeToString(h.Sum(nil))
	if m.Sum, err = m.sum(); err != nil {
		return err
	}
	for name, text := range texts {
		if err := atomicfile.WriteBytes(filepath.Join(temp, name), text); err != nil {
			return err
		}
	}
	if err := atomicfile.WriteJSON(filepath.Join(temp, ManifestFile), m); err != nil {
		return err
	}
	if err := os.Rename(temp, dir); err != nil {
		return err
	}
	atomicfile.SyncFolder(parent)
	return nil
}

// maxDepth bounds the folders within a trained model.
const maxDepth = 8

// copyFolder makes dir a copy of the folder from, without hidden files. Weights are hard links where
// the file system has them. It adds the sizes of the files by their names below prefix to files.
func copyFolder(dir, from, prefix string, files map[string]int64) error {
	if strings.Count(prefix, "/") > maxDepth {
		return fmt.Errorf("%s: has more than %d folders within each other", from, maxDepth)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	list, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range list {
		name := e.Name()
		if strings.HasPrefix(name, ".") {
			continue
		}
		path := filepath.Join(from, name)
		info, err := os.Stat(path) // of the file that a link names
		if err != nil {
			return err
		}
		switch {
		case info.IsDir():
			if err := copyFolder(filepath.Join(dir, name), path, prefix+name+"/", files); err != nil {
				return err
			}
		case info.Mode().IsRegular():
			size, err := copyFile(filepath.Join(dir, name), path)
			if err != nil {
				return err
			}
			files[prefix+name] = size
		}
	}
	atomicfile.SyncFolder(dir)
	return nil
}

// weightSuffixes are the suffixes of files of weights, also of those that other programs read. Programs
// replace them as a whole, so a link to one keeps its content.
var weightSuffixes = []string{".safetensors", ".bin", ".onnx", ".h5", ".msgpack", ".ot", ".pt", ".gguf"}

// copyFile makes to a copy of the file from, or of weights a hard link, and returns its size.
func copyFile(to, from string) (int64, error) {
	if slices.Contains(weightSuffixes, filepath.Ext(from)) {
		real, err := filepath.EvalSymlinks(from)
		if err == nil && os.Link(real, to) == nil {
			info, err := os.Stat(to)
			if err != nil {
				return 0, err
			}
			return info.Size(), nil
		}
	}
	r, err := infile.Open(from)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	var size int64
	err = atomicfile.Write(to, func(w io.Writer) (err error) {
		size, err = io.Copy(w, r)
		return err
	})
	return size, err
}
