package published

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/dataset"
	"github.com/farfield-ml/farfield/internal/infile"
)

// processorFile says how pictures become pixel_values.
const processorFile = "preprocessor_config.json"

// Limits of pictures: pixels of a side, before and after a change of size.
const (
	maxPictureSide = 1 << 16
	maxResizedSide = 1 << 12
)

// pictureReader makes pixel_values of pictures. Its err says why it cannot.
type pictureReader struct {
	err error

	resize        bool
	height, width int
	sampling      dataset.Resampling
	crop          bool
	cropHeight    int
	cropWidth     int
	rescale       bool
	factor        float64
	normalise     bool
	mean, std     [3]float32
}

// newPictureReader reads preprocessor_config.json. Without it the rules of ViT hold, at the
// size of the model.
func newPictureReader(dir string, v *vision) *pictureReader {
	if v.channels != 3 {
		return &pictureReader{err: fmt.Errorf("%s: num_channels is %d, pictures have 3", dir, v.channels)}
	}
	path := filepath.Join(dir, processorFile)
	text, err := infile.ReadBounded(path, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = fmt.Appendf(nil, `{"size":%d}`, v.size), nil
	}
	if err != nil {
		return &pictureReader{err: err}
	}
	r, err := parseProcessor(text)
	if err == nil {
		err = r.checkSize(v)
	}
	if err != nil {
		return &pictureReader{err: fmt.Errorf("%s: %w", path, err)}
	}
	return r
}

// parseProcessor reads the rules of ViT's and DeiT's processors.
func parseProcessor(text []byte) (*pictureReader, error) {
	f, err := parseFields(text)
	if err != nil {
		return nil, err
	}
	for name, v := range f.values {
		if string(v) == "null" { // as if it were not there
			f.read[name] = true
		}
	}
	r := &pictureReader{}
	kind := f.text("feature_extractor_type", "")
	kind = f.text("image_processor_type", kind)
	side, way, crop := 224, dataset.BilinearSampling, false
	switch strings.TrimSuffix(strings.TrimSuffix(kind, "Fast"), "Pil") {
	case "", "ViTImageProcessor", "ViTFeatureExtractor":
		f.needs("do_center_crop", "false")
		f.has("crop_size") // without do_center_crop it has no effect
	case "DeiTImageProcessor", "DeiTFeatureExtractor":
		side, way, crop = 256, dataset.BicubicSampling, true
	default:
		f.fail("image_processor_type", "is %q, ViTImageProcessor or DeiTImageProcessor is supported", infile.Shorten(kind))
	}
	r.resize = f.flag("do_resize", true)
	r.height, r.width = f.size("size", side)
	n := int(way)
	f.decode("resample", "an integer", &n)
	if r.sampling = dataset.Resampling(n); n < int(dataset.NearestSampling) || n > int(dataset.HammingSampling) {
		f.fail("resample", "is %d, needs to be from %d to %d", n, dataset.NearestSampling, dataset.HammingSampling)
	}
	if r.crop = crop && f.flag("do_center_crop", true); crop {
		r.cropHeight, r.cropWidth = f.size("crop_size", 224)
	}
	r.rescale, r.factor = f.flag("do_rescale", true), f.number("rescale_factor", 1./255)
	r.normalise = f.flag("do_normalize", true)
	r.mean, r.std = f.triple("image_mean", 0.5), f.triple("image_std", 0.5)
	for _, x := range r.std {
		if x == 0 {
			f.fail("image_std", "has a 0")
		}
	}
	f.needs("default_to_square", "true")
	f.needs("data_format", `"channels_first"`)
	f.needs("input_data_format", `"channels_last"`)
	f.needs("do_pad", "false")
	return r, f.finishFile(processorFile)
}

// size returns the height and the width of a member: a number for both, or an object.
func (f *fields) size(name string, byDefault int) (height, width int) {
	if !f.has(name) {
		return byDefault, byDefault
	}
	if strings.HasPrefix(string(f.values[name]), "{") {
		o := f.object(name)
		if o == nil {
			return byDefault, byDefault
		}
		height, width = o.count("height", 0), o.count("width", 0)
		if err := o.finishAll(); err != nil && f.err == nil {
			f.err = err
		}
	} else {
		height = f.count(name, 0)
		width = height
	}
	if max(height, width) > maxResizedSide {
		f.fail(name, "is %d×%d, sides of at most %d are supported", height, width, maxResizedSide)
	}
	return height, width
}

// triple returns a number for each of three channels: of a list, or one number for all.
func (f *fields) triple(name string, byDefault float64) (x [3]float32) {
	list := []float64{byDefault}
	if f.has(name) {
		if strings.HasPrefix(string(f.values[name]), "[") {
			f.decode(name, "a list of numbers", &list)
		} else {
			list[0] = f.number(name, byDefault)
		}
	}
	if len(list) == 1 {
		list = []float64{list[0], list[0], list[0]}
	}
	if len(list) != 3 {
		f.fail(name, "has %d numbers, 3 are needed", len(list))
		return x
	}
	for i := range x {
		if x[i] = float32(list[i]); x[i]-x[i] != 0 {
			f.fail(name, "has %g, a number of float32 is needed", list[i])
		}
	}
	return x
}

// checkSize returns an error unless pixel_values have the size of the model.
func (r *pictureReader) checkSize(v *vision) error {
	name, height, width := "size", r.height, r.width
	if r.crop {
		if name = "crop_size"; r.resize && (r.cropHeight > height || r.cropWidth > width) {
			return fmt.Errorf("crop_size: is %d×%d, size %d×%d", r.cropHeight, r.cropWidth, height, width)
		}
		height, width = r.cropHeight, r.cropWidth
	}
	if (r.resize || r.crop) && (height != v.size || width != v.size) {
		return fmt.Errorf("%s: is %d×%d, the model reads %d×%d", name, height, width, v.size, v.size)
	}
	return nil
}

// CheckPictures returns an error unless Pixels can read pictures: the model must read images of
// three channels, and this package must know the preparation that preprocessor_config.json asks
// for.
func (m *Model) CheckPictures() error {
	if m.plan.vision == nil {
		return fmt.Errorf("%s: the %s reads texts, not pictures", m.dir, m.family)
	}
	return m.pictures.err
}

// Pixels returns the pixel_values [3,size,size] of a picture, prepared as preprocessor_config.json
// says: resized to the same pixels as Pillow's, cropped, rescaled and normalised. It returns an
// error if CheckPictures does, if the picture is nil or does not have three bytes for each pixel,
// or if it has another size and no resizing is set.
func (m *Model) Pixels(p *dataset.Picture) ([]float32, error) {
	if err := m.CheckPictures(); err != nil {
		return nil, err
	}
	r, size := m.pictures, m.plan.vision.size
	if p == nil {
		return nil, errors.New("picture: it is nil")
	}
	if max(p.Height, p.Width) > maxPictureSide {
		return nil, fmt.Errorf("picture: is %d wide and %d high, sides of at most %d are read", p.Width, p.Height, maxPictureSide)
	}
	if min(p.Height, p.Width) < 1 || len(p.Pixels) != 3*p.Height*p.Width {
		return nil, fmt.Errorf("picture: is %d wide and %d high with %d bytes, 3 are needed for each pixel", p.Width, p.Height, len(p.Pixels))
	}
	if r.resize && (p.Height != r.height || p.Width != r.width) {
		p = r.sampling.Resize(p, r.height, r.width)
	}
	top, left := (p.Height-size)/2, (p.Width-size)/2
	if p.Height < size || p.Width < size || !r.crop && (p.Height != size || p.Width != size) {
		return nil, fmt.Errorf("picture: is %d wide and %d high without do_resize, the model reads %d×%d", p.Width, p.Height, size, size)
	}
	values := make([]float32, 3*size*size)
	for c := range 3 {
		levels := r.levels(c)
		for y := range size {
			row := p.Pixels[3*((top+y)*p.Width+left)+c:]
			for x := range size {
				values[(c*size+y)*size+x] = levels[row[3*x]]
			}
		}
	}
	return values, nil
}

// ReadPixels returns the pixel_values [3,size,size] of a PNG or JPEG file. It returns an error
// where Pixels does, and if the file is malformed or exceeds a limit.
func (m *Model) ReadPixels(path string) ([]float32, error) {
	if err := m.CheckPictures(); err != nil {
		return nil, err
	}
	p, err := dataset.ReadFile(path, dataset.ReadPhoto)
	if err != nil {
		return nil, err
	}
	values, err := m.Pixels(p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return values, nil
}

// levels returns the numbers of the 256 levels of a channel.
func (r *pictureReader) levels(channel int) (list [256]float32) {
	for i := range list {
		x := float32(i)
		if r.rescale {
			x = float32(float64(i) * r.factor)
		}
		if r.normalise {
			x = float32(x-r.mean[channel]) / r.std[channel]
		}
		list[i] = x
	}
	return list
}

// CheckPixels returns an error unless shape is a shape [B,channels,size,size] of pixel_values that
// the model reads.
func (m *Model) CheckPixels(shape []int) error {
	v := m.plan.vision
	if v == nil {
		return fmt.Errorf("pixel_values: %s reads tokens", m.family)
	}
	if len(shape) != 4 || shape[0] < 1 || !slices.Equal(shape[1:], []int{v.channels, v.size, v.size}) {
		return fmt.Errorf("pixel_values: has the shape %v, needs [B,%d,%d,%d]", shape, v.channels, v.size, v.size)
	}
	return nil
}

// Patches returns the patches [positions,channels·side·side] of the pixel_values of one image, in
// the form in which batches of the model have them. It returns an error if the number of pixels is
// wrong.
func (m *Model) Patches(pixels []float32) ([]float32, error) {
	b, err := m.batch(&Input{B: 1, Pixels: pixels})
	if err != nil {
		return nil, err
	}
	return b.Values, nil
}
