package dataset

import (
	"archive/tar"
	"bytes"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
)

func crc(b []byte) uint32 { return crc32.ChecksumIEEE(b) }

// readers lists all readers, each with a valid file and the bytes of memory allowed per byte of
// file. Fields of text need most: a comma makes a field of 16 bytes, and slices double as they
// grow.
var readers = []struct {
	name string
	good string
	cost int64
	read func(io.Reader) (any, error)
}{
	{"idx", smallIDX, 8, boxed(ReadIDX)},
	{"cifar10", string(make([]byte, 3073)), 16, boxed(ReadCIFAR10)},
	{"records", "\x01ab\x00cd", 64, boxed(ReadImageRecords(1, 2, 2))},
	{"table", "date,a\nx,1\ny,2\n", 256, boxed(ReadTable(',', ""))},
	{"fields", "a\tb\n\"x\"\ty\n", 256, boxed(ReadFields('\t'))},
	{"expressions", "Source\tTarget\n( [MAX 1 ) ]\t1\n", 256, boxed(ReadExpressions)},
	{"reviews", "1\t0_9\ttt1\tgood\n", 256, boxed(ReadReviews)},
	{"pairs", "1\ta\tb\tx\ty\n", 256, boxed(ReadPairs(100))},
	{"fasta", ">a b\nACGT\n>c\nNN\n", 256, boxed(ReadFASTA)},
	{"wav", wav(1, 1, 16, "abcd"), 16, boxed(ReadWAV)},
	{"archive", reviewTar(), 256, boxed(ReadReviewArchive)},
	{"values", "a,label\n1,x\n-2.5,y\n", 256, boxed(ReadValuesTable(',', "label"))},
	{"points", "1\t2\n3\t4\n", 256, boxed(ReadValuesTable('\t', ""))},
	{"npy", npy("<f4", "(2, 2)", "\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\x40\x00\x00\x80\x40"), 64, boxed(ReadValuesNPY)},
	{"csv", "a,b\n\"x\",y\n", 256, boxed(ReadFields(','))},
}

func boxed[T any](read func(io.Reader) (T, error)) func(io.Reader) (any, error) {
	return func(r io.Reader) (any, error) { return read(r) }
}

// npy returns a file in numpy's format.
func npy(descr, shape, data string) string {
	header := "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }"
	header += strings.Repeat(" ", 63-(10+len(header))%64) + "\n"
	return "\x93NUMPY\x01\x00" + string([]byte{byte(len(header)), byte(len(header) >> 8)}) + header + data
}

// reviewTar returns an archive with one review in each part.
func reviewTar() string {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, part := range []string{"train", "test"} {
		for _, m := range [][2]string{{"urls_pos.txt", "http://x/title/tt1/y\n"}, {"pos/0_9.txt", "good"}} {
			_ = w.WriteHeader(&tar.Header{Name: "aclImdb/" + part + "/" + m[0], Size: int64(len(m[1])), Typeflag: tar.TypeReg})
			_, _ = io.WriteString(w, m[1])
		}
	}
	_ = w.Close()
	return b.String()
}

// free is the memory that every reader may use.
const free = 256 << 10

// Every reader accepts or refuses any bytes without a panic, in memory proportional to them.
func FuzzReaders(f *testing.F) {
	for i, r := range readers {
		f.Add(uint8(i), []byte(r.good))
		f.Add(uint8(i), []byte(r.good[:len(r.good)/2]))
		f.Add(uint8(i), []byte(strings.Repeat(r.good, 3)))
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		r := readers[int(which)%len(readers)]
		n := check.AllocatedBytes(func() { _, _ = r.read(bytes.NewReader(b)) })
		if n > free+r.cost*int64(len(b)) {
			t.Errorf("%s: %d bytes are read in %d bytes of memory", r.name, len(b), n)
		}
	})
}

func TestReadersTakeWhatIsGood(t *testing.T) {
	for _, r := range readers {
		if _, err := r.read(strings.NewReader(r.good)); err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
	}
}

func FuzzPicture(f *testing.F) {
	f.Add(pictureOf(f, 7, 5, false))
	f.Add(pictureOf(f, 9, 4, true))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p *Picture
		var err error
		// A pixel may take 16 bytes while it is decoded, and 4 after that.
		n := check.AllocatedBytes(func() { p, err = ReadPicture(bytes.NewReader(b)) })
		if n > 32*(pictureFree+inflateFactor*int64(len(b))) {
			t.Errorf("%d bytes are read in %d bytes of memory", len(b), n)
		}
		if err == nil && len(p.Pixels) != 3*p.Width*p.Height {
			t.Errorf("%d×%d pixels have %d bytes", p.Width, p.Height, len(p.Pixels))
		}
		var photo *Picture
		var failed error
		n = check.AllocatedBytes(func() { photo, failed = ReadPhoto(bytes.NewReader(b)) })
		if n > 32*(pictureFree+inflateFactor*int64(len(b))) {
			t.Errorf("%d bytes of a photo are read in %d bytes of memory", len(b), n)
		}
		if (err == nil) != (failed == nil) || err == nil && len(photo.Pixels) != len(p.Pixels) {
			t.Errorf("picture: %v, photo: %v", err, failed)
		}
	})
}

func FuzzInflate(f *testing.F) {
	f.Add(packed(f, []byte(smallIDX)))
	f.Add(packed(f, make([]byte, 3<<20)))
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Inflate(bytes.NewReader(b))
		if err != nil {
			return
		}
		n, _ := io.Copy(io.Discard, r)
		if most := int64(inflateFree + inflateFactor*len(b) + 1<<16); n > most {
			t.Errorf("%d bytes become %d", len(b), n)
		}
	})
}

// A gzip file may have several members.
func TestInflateJoinsMembers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "two.gz")
	if err := os.WriteFile(path, append(packed(t, []byte("one ")), packed(t, []byte("two"))...), 0o666); err != nil {
		t.Fatal(err)
	}
	if b, err := ReadFile(path, io.ReadAll); err != nil || string(b) != "one two" {
		t.Errorf("%q, %v", b, err)
	}
}
