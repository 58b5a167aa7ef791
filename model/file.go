package model

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/safetensors"
	"github.com/farfield-ml/farfield/internal/strict"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/param"
)

// The names of the files in a model's folder.
const (
	ConfigFile  = "config.json"
	WeightsFile = "model.safetensors"
)

// formatVersion is the version of both files: the field and the metadata "version".
const formatVersion = 1

// seedPrefix begins the metadata with the seed of a layer, before the layer's name.
const seedPrefix = "seed."

// configFile is the content of config.json.
type configFile struct {
	Version int `json:"version"`
	Config
}

// Save writes the configuration and the weights to a folder, and creates the folder if
// it does not exist. Each file is replaced atomically, but not both together: use an empty
// folder if they must fit. Save returns ErrCompressed if weights are compressed and the
// error of CheckMechanisms, before it writes anything, and an error if a file cannot be
// written.
func (m *Model) Save(dir string) error {
	if err := m.checkPrecision("save"); err != nil {
		return err
	}
	if err := m.CheckMechanisms(); err != nil {
		return err
	}
	if err := atomicfile.MakeFolder(dir); err != nil {
		return err
	}
	text, err := json.MarshalIndent(configFile{formatVersion, m.config}, "", "  ")
	if err != nil {
		return err
	}
	var weights []*array.Array
	for _, p := range m.storedParams() {
		a, err := weightArray(p)
		if err != nil {
			return err
		}
		weights = append(weights, a)
	}
	metadata := map[string]string{"format": "farfield model", "version": strconv.Itoa(formatVersion)}
	for name, seed := range m.seeds {
		metadata[seedPrefix+name] = strconv.FormatUint(seed, 10)
	}
	err = atomicfile.Write(filepath.Join(dir, WeightsFile), func(w io.Writer) error {
		return safetensors.Write(w, weights, metadata)
	})
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(filepath.Join(dir, ConfigFile), append(text, '\n'))
}

// storedParams returns the weights, followed by the constants.
func (m *Model) storedParams() []*param.Param {
	return slices.Concat(m.params.All(), m.constants.All())
}

func weightArray(p *param.Param) (*array.Array, error) {
	return array.New(p.Name, p.Data, p.Shape...)
}

// LoadIn reads a model as LoadWith does, with its weights compressed to precision p as by Compress. The
// weights are compressed as they are read, so that they are never all in memory in 32 bits. It returns
// an error if LoadWith or Compress would.
func LoadIn(dir string, p nn.Precision, factories map[string]Factory) (*Model, error) {
	path := filepath.Join(dir, ConfigFile)
	text, err := infile.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c, err := parseConfigFile(text, factories)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	path = filepath.Join(dir, WeightsFile)
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := readModel(f, c, p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

func parseConfigFile(text []byte, factories map[string]Factory) (Config, error) {
	// The version is checked first: fields of a later version may be unknown.
	var head struct {
		Version *int            `json:"version"`
		Task    string          `json:"task"`
		Model   json.RawMessage `json:"model"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return Config{}, err
	}
	if head.Task != "" && head.Model != nil {
		return Config{}, fmt.Errorf("is the configuration of a run: read its folder ckpt/best, or the run by farfield.Open")
	}
	if head.Version == nil {
		return Config{}, fmt.Errorf("version: is missing")
	}
	if *head.Version != formatVersion {
		return Config{}, fmt.Errorf("version: is %d, %d is read", *head.Version, formatVersion)
	}
	var c configFile
	if err := strict.Unmarshal(text, &c); err != nil {
		return Config{}, err
	}
	c.Factories = factories
	err := fault.InFile(c.Validate())
	if err != nil && factories == nil && c.hasUnknownMechanism() {
		err = fmt.Errorf("%w; one of your own needs its factory, which farfield.WithFactories and LoadWith take", err)
	}
	return c.Config, err
}

// readModel returns the model of configuration c with the weights of f in the given precision.
func readModel(f *safetensors.File, c Config, precision nn.Precision) (*Model, error) {
	if v := f.Metadata()["version"]; v != strconv.Itoa(formatVersion) {
		return nil, fmt.Errorf("version: is %q, %d is read", v, formatVersion)
	}
	// A wrong configuration could request any amount of memory.
	var bytes int64
	for _, t := range f.Tensors() {
		bytes += t.Bytes
	}
	if n := (cost{c}).storedSize(); n > float64(bytes) {
		return nil, fmt.Errorf("weights: have %d bytes, the configuration needs %.0f elements", bytes, n)
	}
	// So could a number of layers with few weights each.
	layers := c.Layers
	if c.Kind == EncoderDecoder {
		layers += c.sourceLayers()
	}
	if n := len(f.Tensors()); n < layers {
		return nil, fmt.Errorf("weights: have %d tensors, the configuration needs one at least for each of %d layers", n, layers)
	}
	seeds := map[string]uint64{}
	for field, text := range f.Metadata() {
		if name, is := strings.CutPrefix(field, seedPrefix); is {
			seed, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: is %q, needs a whole number from 0 to 2^64-1", field, text)
			}
			seeds[name] = seed
		}
	}
	m, err := buildModel(c, &builder{seeds: seeds})
	if err != nil {
		return nil, err
	}
	for _, name := range f.Names() {
		if _, err := m.params.Get(name); err != nil {
			if _, constant := m.constants.Get(name); constant != nil {
				return nil, err
			}
		}
	}
	if err := m.Reserve(precision); err != nil {
		return nil, err
	}
	for _, p := range m.storedParams() {
		if w := m.compressed[p.Name]; w != nil {
			if err := readCompressed(w, f, p.Name, p.Shape); err != nil {
				return nil, err
			}
			continue
		}
		a, err := f.ReadArray(p.Name)
		if err != nil {
			return nil, err
		}
		if !slices.Equal(a.Shape, p.Shape) {
			return nil, misshapen(p.Name, a.Shape, p.Shape)
		}
		if err := readWeight(p, a); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// readWeight sets p to the elements of a.
func readWeight(p *param.Param, a *array.Array) error {
	switch data := any(p.Data).(type) {
	case []float32:
		x, err := a.Float32()
		if err != nil {
			return err
		}
		copy(data, x)
	case []float64:
		x, err := a.Float64()
		if err != nil {
			return err
		}
		copy(data, x)
	}
	return checkNumbers(p.Name, 0, p.Data)
}

func misshapen(name string, shape, want []int) error {
	return fmt.Errorf("%s: shape is %v, the configuration needs %v", name, shape, want)
}

// checkNumbers returns an error if an element of x is not finite. x holds the elements of a weight from
// element at on.
func checkNumbers[T kernel.Float](name string, at int, x []T) error {
	for i, v := range x {
		if v-v != 0 {
			return fmt.Errorf("%s: element %d is %v", name, at+i, v)
		}
	}
	return nil
}

// rowsRead is how many rows of a compressed weight are read at a time.
const rowsRead = 32

// readCompressed sets a compressed weight to the tensor of f named name, rowsRead rows at a time.
func readCompressed(w *nn.Compressed, f *safetensors.File, name string, shape []int) error {
	a, err := f.OpenStored(name)
	if err != nil {
		return err
	}
	if !slices.Equal(a.Shape, shape) {
		return misshapen(name, a.Shape, shape)
	}
	out, in := w.Size()
	rows := make([]float32, min(rowsRead, out)*in)
	for i := 0; i < out; i += rowsRead {
		x := rows[:min(rowsRead, out-i)*in]
		if err := array.ReadFloats(a, x, int64(i*in)); err != nil {
			return err
		}
		if err := checkNumbers(name, i*in, x); err != nil {
			return err
		}
		w.Set(i, x)
	}
	return nil
}

// WeightSum returns the SHA-256 of the names and bits of the weights, in hexadecimal
// digits.
func (m *Model) WeightSum() string {
	h := sha256.New()
	for _, p := range m.params.All() {
		h.Write(append([]byte(p.Name), 0))
		if w := m.compressed[p.Name]; w != nil {
			w.WriteTo(h) // a hash returns no error
			continue
		}
		b := array.FloatBytes(p.Data)
		if b == nil {
			b, _ = binary.Append(nil, binary.LittleEndian, p.Data) // fails for types of no fixed size alone
		}
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))
}
