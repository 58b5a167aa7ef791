package stream

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/internal/safetensors"
	"github.com/farfield-ml/farfield/internal/streamfile"
	"github.com/farfield-ml/farfield/tensor"
)

// Output writes the rows of o. Every kind of output keeps a digest of all rows.
type Output struct {
	// RowStep above 1 writes only rows 0, RowStep, 2·RowStep and so on, to a shorter array.
	RowStep int64

	path string // "": no file
	rank int    // dimensions of its array
	w    io.Writer

	shape       Shape
	header      []byte
	file        *os.File
	isShared    bool     // another rank owns the file
	digests     []uint32 // digest of each head, [B·H]
	rowDigests  []uint32 // with RowStep above 1: digest of each head's rows in the file
	isCommitted bool     // the file has its final name
}

// These suffixes are appended to the path of an output.
const (
	PartialSuffix    = ".partial"
	CheckpointSuffix = ".checkpoint"
	rawSuffix        = ".raw"
)

// NewFileOutput returns an output to a file. Until all rows are written the file has the
// additional suffix PartialSuffix. The suffix of path selects the format: .npy and .safetensors
// hold the array o of rank 2 [N,Dv], 3 [H,N,Dv] or 4 [B,H,N,Dv]; .raw holds numbers without a
// header, token by token, [N,B,H,Dv]. It returns an error for another suffix, or if the folder
// is missing.
func NewFileOutput(path string, rank int) (*Output, error) {
	switch suffix := filepath.Ext(path); suffix {
	case ".npy", ".safetensors", rawSuffix:
	default:
		return nil, fmt.Errorf("%s: the suffix is %q, needs .npy, .safetensors or .raw", path, suffix)
	}
	path = atomicfile.FollowLinks(path) // the unfinished file is renamed to it, and needs its file system
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s: not a folder", dir)
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a file", path)
	}
	return &Output{path: path, rank: rank}, nil
}

// NewWriterOutput returns an output that writes numbers to w without a header, token by
// token.
func NewWriterOutput(w io.Writer) *Output { return &Output{w: w} }

// NewDigestOutput returns an output that keeps the digest only.
func NewDigestOutput() *Output { return &Output{} }

// isByToken reports whether the heads of a token lie together.
func (o *Output) isByToken() bool { return o.w != nil || filepath.Ext(o.path) == rawSuffix }

// formatName returns the name of the kind of output.
func (o *Output) formatName() string {
	switch {
	case o.w != nil:
		return "pipe"
	case o.path == "":
		return "digest"
	case o.RowStep > 1:
		return fmt.Sprintf("%s of one row in %d", filepath.Ext(o.path), o.RowStep)
	}
	return filepath.Ext(o.path)
}

// countRows returns the number of written rows among the first n.
func (o *Output) countRows(n int64) int64 {
	if o.RowStep > 1 && n > 0 {
		return (n-1)/o.RowStep + 1
	}
	return n
}

// bindShape prepares the output for a shape.
func (o *Output) bindShape(s Shape) error {
	if o.RowStep < 0 {
		return fault.Fieldf[Output]("{RowStep}: one in %d is written, needs 0 or more", o.RowStep)
	}
	o.shape, o.digests, o.rowDigests = s, make([]uint32, s.B*s.H), nil
	if o.RowStep > 1 {
		o.rowDigests = make([]uint32, s.B*s.H)
	}
	if o.path == "" || o.isByToken() {
		return nil
	}
	if s.N < 0 {
		return fmt.Errorf("%s: the header has the number of tokens, which is not known; needs .raw", o.path)
	}
	if o.rank < 4 && s.B != 1 || o.rank < 3 && s.H != 1 || o.rank < 2 || o.rank > 4 {
		return fmt.Errorf("%s: %d dimensions have no room for B = %d and H = %d", o.path, o.rank, s.B, s.H)
	}
	if s.N > math.MaxInt {
		return fmt.Errorf("%s: N is %d, an array has at most %d rows here", o.path, s.N, math.MaxInt)
	}
	shape := []int{s.B, s.H, int(o.countRows(s.N)), s.Dv}[4-o.rank:]
	t := array.F4
	if elementSize() == 8 {
		t = array.F8
	}
	if filepath.Ext(o.path) == ".npy" {
		o.header = array.NPYHeader(t, shape)
		return nil
	}
	var err error
	o.header, err = safetensors.EncodeHeader([]*array.Array{{Name: "o", DType: t, Shape: shape}}, nil)
	return err
}

// rowBytes returns the bytes of a row of one head.
func (o *Output) rowBytes() int64 { return int64(o.shape.Dv) * elementSize() }

// fileSize returns the bytes of the file with n rows of each head.
func (o *Output) fileSize(n int64) int64 {
	return int64(len(o.header)) + o.countRows(n)*int64(len(o.digests))*o.rowBytes()
}

// newHeads returns memory for the outputs of n tokens, in the order of the file.
func (o *Output) newHeads(n int, s Shape) tensor.Heads {
	x := tensor.NewHeads(s.B, s.H, n, s.Dv)
	if o.isByToken() {
		x.SB, x.SH, x.SN = s.H*s.Dv, s.Dv, s.B*s.H*s.Dv
	}
	return x
}

// partialPath returns the path of the unfinished file.
func (o *Output) partialPath() string { return o.path + PartialSuffix }

// createFile creates the unfinished file with its header.
func (o *Output) createFile() error {
	if o.path == "" {
		return nil
	}
	f, err := os.OpenFile(o.partialPath(), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return lock.WrapWriteError(o.path, err)
	}
	o.file = f
	if err := f.Truncate(0); err != nil {
		return lock.WrapWriteError(o.path, err)
	}
	if _, err := f.WriteAt(o.header, 0); err != nil {
		return lock.WrapWriteError(o.path, err)
	}
	atomicfile.SyncFolder(filepath.Dir(o.path)) // before a checkpoint counts its rows
	// The file has its full size from the start; unwritten parts are holes.
	return lock.WrapWriteError(o.path, f.Truncate(o.fileSize(max(o.shape.N, 0))))
}

// openShared opens the unfinished file of another rank.
func (o *Output) openShared() (err error) {
	if o.path == "" {
		return nil
	}
	o.isShared = true
	o.file, err = os.OpenFile(o.partialPath(), os.O_RDWR, 0)
	return err
}

// resumeFile continues the file of a checkpoint with the rows of each head from first up
// to end. A complete file may have its final name already. resumeFile returns an error if
// the file is not of this output, or if its rows differ from the digests.
func (o *Output) resumeFile(c *streamfile.Checkpoint, first, end int64) error {
	if len(c.Digests) != len(o.digests) || len(c.RowDigests) != len(o.rowDigests) {
		return fmt.Errorf("checkpoint: has %d and %d digests, the output %d and %d", len(c.Digests), len(c.RowDigests), len(o.digests), len(o.rowDigests))
	}
	copy(o.digests, c.Digests)
	copy(o.rowDigests, c.RowDigests)
	if o.path == "" {
		return nil
	}
	f, err := os.OpenFile(o.partialPath(), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) && c.IsComplete {
		if info, err := os.Stat(o.path); err == nil && info.Size() == o.fileSize(max(o.shape.N, end)) {
			o.isCommitted = true
			return o.checkCommitted(first, end)
		}
	}
	if err != nil {
		return err
	}
	o.file = f
	info, err := f.Stat()
	if err != nil {
		return err
	}
	switch got, want := info.Size(), o.fileSize(max(o.shape.N, end)); {
	case o.shape.N >= 0 && got != want || got < want:
		return fmt.Errorf("%s: has %d bytes, the checkpoint needs %d", o.partialPath(), got, want)
	case o.shape.N < 0:
		if err := f.Truncate(want); err != nil {
			return err
		}
	}
	return o.checkFile(f, first, end)
}

// checkCommitted is checkFile for a file with its final name.
func (o *Output) checkCommitted(first, end int64) error {
	f, err := infile.Open(o.path)
	if err != nil {
		return err
	}
	defer f.Close()
	return o.checkFile(f, first, end)
}

// checkFile returns an error if the header of f is not of this output, or if its rows, of
// each head from first up to end, differ from the digests.
func (o *Output) checkFile(f *os.File, first, end int64) error {
	header := make([]byte, len(o.header))
	if _, err := f.ReadAt(header, 0); err != nil {
		return err
	}
	if !slices.Equal(header, o.header) {
		return fmt.Errorf("%s: it has another header than this output", f.Name())
	}
	want := o.digests
	if o.RowStep > 1 {
		want = o.rowDigests
	}
	got, row, rows := make([]uint32, len(want)), o.rowBytes(), o.countRows(end)-o.countRows(first)
	if o.isByToken() {
		token := make([]byte, row*int64(len(got)))
		in := bufio.NewReaderSize(io.NewSectionReader(f, o.fileSize(first), rows*int64(len(token))), 1<<20)
		for range rows {
			if _, err := io.ReadFull(in, token); err != nil {
				return fmt.Errorf("%s: %w", f.Name(), err)
			}
			o.addTokens(got, token)
		}
	} else {
		for i := range got {
			sum := crc32.New(castagnoli)
			if _, err := io.Copy(sum, io.NewSectionReader(f, o.rowPlace(i, first), rows*row)); err != nil {
				return fmt.Errorf("%s: %w", f.Name(), err)
			}
			got[i] = sum.Sum32()
		}
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("%s: damaged: the rows of head %d have CRC-32C %08x, they were written as %08x", f.Name(), i, got[i], want[i])
		}
	}
	return nil
}

// rowPlace returns the offset of the first row of a head in the file from row at on.
func (o *Output) rowPlace(head int, at int64) int64 {
	return int64(len(o.header)) + (int64(head)*o.countRows(o.shape.N)+o.countRows(at))*o.rowBytes()
}

// addTokens adds the bytes b of whole tokens to the digests of heads, sums [B·H].
func (o *Output) addTokens(sums []uint32, b []byte) {
	for row := int(o.rowBytes()); len(b) > 0; {
		for i := range sums {
			sums[i] = crc32.Update(sums[i], castagnoli, b[:row])
			b = b[row:]
		}
	}
}

// writeRows takes the rows x [B,H,n,Dv] of tokens from at on, and writes them at their
// places.
func (o *Output) writeRows(x tensor.Heads, at int64) error {
	if x.N == 0 {
		return nil
	}
	row := int(o.rowBytes())
	if o.isByToken() {
		b, token := bytesOf(x.Data[:x.N*x.SN]), row*len(o.digests)
		o.addTokens(o.digests, b)
		if b = o.selectRows(b, token, at); o.RowStep > 1 {
			o.addTokens(o.rowDigests, b)
		}
		if o.w != nil {
			_, err := o.w.Write(b)
			return err
		}
		_, err := o.file.WriteAt(b, o.fileSize(at))
		return lock.WrapWriteError(o.path, err)
	}
	for i := range o.digests {
		b := bytesOf(x.Head(i/x.H, i%x.H).Data[:x.N*x.D])
		o.digests[i] = crc32.Update(o.digests[i], castagnoli, b)
		if o.file == nil {
			continue
		}
		if b = o.selectRows(b, row, at); o.RowStep > 1 {
			o.rowDigests[i] = crc32.Update(o.rowDigests[i], castagnoli, b)
		}
		if _, err := o.file.WriteAt(b, o.rowPlace(i, at)); err != nil {
			return lock.WrapWriteError(o.path, err)
		}
	}
	return nil
}

// ReadRow sets dst [Dv] to row i of head h of batch row b, read from the file of a finished
// run. It returns an error if the file does not have this row.
func (o *Output) ReadRow(dst []tensor.Float, b, h int, i int64) error {
	if s := &o.shape; b < 0 || b >= s.B || h < 0 || h >= s.H || i < 0 || i >= s.N {
		return fmt.Errorf("row %d of head %d of batch row %d: there are %d, %d and %d", i, h, b, s.N, s.H, s.B)
	}
	if o.path == "" || o.RowStep > 1 && i%o.RowStep != 0 || len(dst) != o.shape.Dv {
		return fmt.Errorf("row %d: not in the output, or not of %d numbers", i, len(dst))
	}
	if o.RowStep > 1 {
		i /= o.RowStep
	}
	head, heads := int64(b*o.shape.H+h), int64(len(o.digests))
	place := head*o.countRows(o.shape.N) + i
	if o.isByToken() {
		place = i*heads + head
	}
	f, err := infile.Open(o.path)
	if err != nil {
		return err
	}
	defer f.Close()
	at := io.NewSectionReader(f, int64(len(o.header))+place*o.rowBytes(), o.rowBytes())
	return binary.Read(at, binary.LittleEndian, dst)
}

// selectRows returns the rows to write from b, rows of size bytes beginning with row at.
func (o *Output) selectRows(b []byte, size int, at int64) []byte {
	if o.RowStep <= 1 {
		return b
	}
	var kept []byte
	rows := int64(len(b) / size)
	for n := o.countRows(at); n < o.countRows(at+rows); n++ {
		kept = append(kept, b[(n*o.RowStep-at)*int64(size):][:size]...)
	}
	return kept
}

// bytesOf returns x as little-endian bytes.
func bytesOf(x []tensor.Float) []byte {
	if b := array.FloatBytes(x); b != nil {
		return b
	}
	b, _ := binary.Append(nil, binary.LittleEndian, x) // fails only for types without fixed size
	return b
}

// syncFile flushes the file to the disk.
func (o *Output) syncFile() error {
	if o.file == nil {
		return nil
	}
	return lock.WrapWriteError(o.path, o.file.Sync())
}

// commitFile gives the file its final name.
func (o *Output) commitFile() error {
	if o.path == "" || o.isCommitted {
		return nil
	}
	if err := o.syncFile(); err != nil {
		return err
	}
	if err := o.file.Close(); err != nil {
		return err
	}
	return atomicfile.Replace(o.partialPath(), o.path)
}

// closeFile closes the file, and removes an unfinished one unless keep is set. The next run
// opens its own.
func (o *Output) closeFile(keep bool) {
	if o.file != nil {
		o.file.Close()
		if !keep && !o.isShared {
			os.Remove(o.partialPath())
		}
	}
	o.file, o.isShared, o.isCommitted = nil, false, false
}
