package task

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"math"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/internal/infile"
)

// wholePrefix begins a digest of all data. Digests without it are of earlier versions, or of a
// source that has its own, which is of all its data.
const wholePrefix = "all:"

// Digest returns a checksum that identifies the data of a source. A source with a method Digest is
// asked for its own. Otherwise the checksum is the SHA-256 of the specification and of all samples;
// if the samples lie in files of their own, of the files. sums may hold checksums of files, and
// gets those that it lacks; nil: none are kept. Samples that are drawn without end are identified
// by the data from which they are drawn, and generated ones by the first of them. Digest returns
// the errors of reading.
func Digest(src Source, sums *FileSums) (string, error) {
	if d, ok := src.(interface{ Digest() string }); ok {
		return d.Digest(), nil
	}
	h := sha256.New()
	d := &digester{Hash: h, sums: sums}
	if err := d.add(src); err != nil {
		return "", err
	}
	return wholePrefix + hex.EncodeToString(h.Sum(nil)), nil
}

// DigestLike returns the digest of src in the form of was, which is a digest of this or an earlier
// version: if two digests have one form, they are equal for equal data. digest is the result of
// Digest.
func DigestLike(was string, src Source, digest string) (string, error) {
	if IsWholeDigest(was) == IsWholeDigest(digest) {
		return digest, nil
	}
	return sampleDigest(src)
}

// IsWholeDigest reports whether digest has the form that Digest now returns for a source without a
// method Digest.
func IsWholeDigest(digest string) bool { return strings.HasPrefix(digest, wholePrefix) }

// FileSums holds the SHA-256 of files by their FileIdentity.
type FileSums struct {
	Version int               `json:"version"`
	Files   map[string]string `json:"files"`

	changed bool
}

// HasChanged reports whether Digest has added checksums.
func (s *FileSums) HasChanged() bool { return s.changed }

// settledAge is the age of a file at which its times tell whether it changed later: the clocks of
// some file systems tick in seconds.
const settledAge = 3 * time.Second

// add returns the SHA-256 of a file.
func (s *FileSums) add(path string) (string, error) {
	f, err := infile.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	id := infile.Identity(info)
	if s != nil {
		if sum, ok := s.Files[id]; ok {
			return sum, nil
		}
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	sum := hex.EncodeToString(h.Sum(nil))
	if after, err := f.Stat(); s != nil && err == nil && infile.Identity(after) == id && time.Since(after.ModTime()) > settledAge {
		if s.Files == nil {
			s.Files = map[string]string{}
		}
		s.Files[id], s.changed = sum, true
	}
	return sum, nil
}

// digester hashes samples.
type digester struct {
	hash.Hash
	sums *FileSums
	buf  []byte
}

// dataHasher is a source whose samples are drawn from data without end, or lie in files.
type dataHasher interface {
	// hashData adds all data that the samples are made of, or reports that it can't.
	hashData(d *digester) (ok bool, err error)
}

// add hashes a source.
func (d *digester) add(src Source) error {
	if needle, ok := src.(*Needle); ok {
		src = needle.shortenWindow()
		d.addText(needle.text.Corpus.Text)
	}
	spec := src.Spec()
	d.addText(fmt.Appendf(nil, "%+v", spec))
	if data, ok := src.(dataHasher); ok {
		if ok, err := data.hashData(d); ok || err != nil {
			return err
		}
	}
	var s Sample
	for split, count := range spec.Count {
		if count == Endless {
			count = digestSamples
		}
		d.addCount(count)
		for i := range count {
			if err := src.Sample(&s, Split(split), i); err != nil {
				return err
			}
			d.addSample(&s, spec.Vocab <= 1<<16 && spec.Classes < 1<<15)
		}
	}
	return nil
}

// addSample hashes a sample. short says that 16 bits hold its tokens and labels.
func (d *digester) addSample(s *Sample, short bool) {
	d.addInts(s.Tokens, short)
	d.addInts(s.Types, short)
	d.addInts(s.Labels, short)
	d.addCount(s.Cut)
	d.addCount(int(s.Class))
	for _, list := range [][]float32{s.Values, s.Targets} {
		d.addCount(len(list))
		d.buf = d.buf[:0]
		for _, x := range list {
			d.buf = binary.LittleEndian.AppendUint32(d.buf, math.Float32bits(x))
		}
		d.write()
	}
	d.addCount(len(s.Values64))
	for _, x := range s.Values64 {
		d.buf = binary.LittleEndian.AppendUint64(d.buf, math.Float64bits(x))
	}
	d.write()
}

// addInts hashes a list with its length.
func (d *digester) addInts(list []int32, short bool) {
	d.addCount(len(list))
	for _, x := range list {
		if short {
			d.buf = binary.LittleEndian.AppendUint16(d.buf, uint16(x))
		} else {
			d.buf = binary.LittleEndian.AppendUint32(d.buf, uint32(x))
		}
	}
	d.write()
}

// addText hashes bytes with their length.
func (d *digester) addText(text []byte) {
	d.addCount(len(text))
	_, _ = d.Write(text) // a hash does not fail
}

// addCount hashes a number.
func (d *digester) addCount(n int) {
	d.buf = binary.LittleEndian.AppendUint64(d.buf[:0], uint64(n))
	d.write()
}

// write hashes the buffer and empties it.
func (d *digester) write() {
	_, _ = d.Write(d.buf) // a hash does not fail
	d.buf = d.buf[:0]
}

// addFile hashes the sum of a file with its class.
func (d *digester) addFile(path string, class int32) error {
	sum, err := d.sums.add(path)
	if err != nil {
		return err
	}
	d.addText([]byte(sum))
	d.addCount(int(class))
	return nil
}

// hashData hashes the files of all splits.
func (c *classFolder) hashData(d *digester) (bool, error) {
	for _, part := range c.files {
		d.addCount(len(part))
		for _, f := range part {
			if err := d.addFile(f.path, f.class); err != nil {
				return true, err
			}
		}
	}
	return true, nil
}

// hashData hashes texts that lie in files which Sample reads.
func (t *OwnTexts) hashData(d *digester) (bool, error) {
	for _, part := range t.parts {
		for i := range part {
			if part[i].path == "" || t.tokens != nil {
				return false, nil
			}
		}
	}
	for _, part := range t.parts {
		d.addCount(len(part))
		for i := range part {
			if err := d.addFile(part[i].path, part[i].class); err != nil {
				return true, err
			}
		}
	}
	return true, nil
}

// hashData hashes all sequences.
func (t *Genome) hashData(d *digester) (bool, error) {
	d.addCount(int(t.seed))
	for _, split := range t.regions {
		for _, records := range split {
			d.addCount(len(records))
			for _, r := range records {
				d.addText(r)
			}
		}
	}
	return true, nil
}

// forecastSamples bounds the numbers of windows that are hashed one by one, as all are in digests of earlier
// versions.
const forecastSamples = 1 << 30

// hashData hashes a long table, whose windows hold each number many times.
func (t *Forecast) hashData(d *digester) (bool, error) {
	if len(t.values) <= forecastSamples/t.Window {
		return false, nil
	}
	for _, column := range t.targets {
		d.addCount(column)
	}
	const piece = 1 << 16
	for at := 0; at < len(t.values); at += piece {
		d.buf = d.buf[:0]
		for _, x := range t.values[at:min(at+piece, len(t.values))] {
			d.buf = binary.LittleEndian.AppendUint64(d.buf, math.Float64bits(x))
		}
		d.write()
	}
	return true, nil
}

// hashData hashes all reviews.
func (t *Films) hashData(d *digester) (bool, error) {
	d.addCount(int(t.seed))
	for _, split := range t.films {
		d.addCount(len(split))
		for _, film := range split {
			d.addCount(len(film))
			for _, text := range film {
				d.addText(text)
			}
		}
	}
	return true, nil
}

// digestSamples is the number of samples that identify a split without end, and the most of any
// split in digests of earlier versions.
const digestSamples = 64

// sampleDigest is the digest of earlier versions: the SHA-256 of the specification and up to 64
// evenly spread samples of each split.
func sampleDigest(src Source) (string, error) {
	if needle, ok := src.(*Needle); ok {
		src = needle.shortenWindow()
	}
	spec := src.Spec()
	h := sha256.New()
	fmt.Fprintf(h, "%+v", spec)
	var s Sample
	for split, count := range spec.Count {
		if count == Endless {
			count = digestSamples
		}
		n := min(count, digestSamples)
		for i := range n {
			if err := src.Sample(&s, Split(split), i*count/n); err != nil {
				return "", err
			}
			for _, part := range []any{s.Tokens, int64(s.Cut), s.Values, s.Class, s.Labels, s.Targets} {
				if err := binary.Write(h, binary.LittleEndian, part); err != nil {
					return "", err
				}
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
