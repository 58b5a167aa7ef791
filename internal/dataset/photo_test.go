package dataset

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// photoFolders are the folders with pictures and what Pillow makes of them.
func photoFolders() []string {
	list := []string{filepath.Join("testdata", "photos")}
	if dir := os.Getenv("FARFIELD_PICTURES"); dir != "" {
		list = append(list, filepath.Join(dir, "photos"))
	}
	return list
}

// TestPhotosHaveThePixelsOfPillow compares PNGs and JPEGs of many kinds with the pixels that
// lab/peers/pillow_pictures.py wrote. PNGs are equal. The inverse transforms of two JPEG
// decoders differ by at most 1 in a sample of luma or chroma. Interpolation keeps that bound. Blue,
// the worst colour, then differs by 1 + 1.772 and a rounding, which is below 4.
func TestPhotosHaveThePixelsOfPillow(t *testing.T) {
	for _, dir := range photoFolders() {
		list, err := filepath.Glob(filepath.Join(dir, "*.want.png"))
		if err != nil || len(list) == 0 {
			t.Fatalf("%s has no pictures: %v", dir, err)
		}
		largest := map[int]int{}
		for _, path := range list {
			want, err := ReadFile(path, ReadPicture)
			if err != nil {
				t.Fatal(err)
			}
			path = strings.TrimSuffix(path, ".want.png")
			got, err := ReadFile(path, ReadPhoto)
			if err != nil {
				t.Fatal(err)
			}
			if got.Height != want.Height || got.Width != want.Width {
				t.Errorf("%s: %d×%d, want %d×%d", path, got.Width, got.Height, want.Width, want.Height)
				continue
			}
			most, differ := 0, 0
			for i, x := range got.Pixels {
				d := int(x) - int(want.Pixels[i])
				if d != 0 {
					differ++
				}
				most = max(most, d, -d)
			}
			bound := 0
			switch {
			case strings.HasSuffix(path, "grey.jpg"):
				bound = 1
			case strings.HasSuffix(path, ".jpg"):
				bound = 3
			}
			largest[bound] = max(largest[bound], most)
			if most > bound {
				t.Errorf("%s: %d of %d levels differ, by at most %d", path, differ, len(got.Pixels), most)
			}
		}
		t.Logf("%s: compared %d pictures, largest difference %v by bound", dir, len(list), largest)
	}
}

// TestPhotoDropsTransparency: colours stay where ReadPicture blends them with black.
func TestPhotoDropsTransparency(t *testing.T) {
	m := image.NewNRGBA(image.Rect(0, 0, 1, 1))
	m.Set(0, 0, color.NRGBA{200, 100, 50, 0})
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	p, err := ReadPhoto(&b)
	if err != nil || !bytes.Equal(p.Pixels, []byte{200, 100, 50}) {
		t.Errorf("%v, %v", p, err)
	}
}

// Pillow clips 16 bits of grey, and keeps the high byte of 16 bits of colour.
func TestPhotoClipsWideGrey(t *testing.T) {
	m := image.NewGray16(image.Rect(0, 0, 5, 1))
	for x, level := range []uint16{0, 1, 255, 256, 0xffff} {
		m.SetGray16(x, 0, color.Gray16{Y: level})
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	p, err := ReadPhoto(&b)
	if err != nil || !bytes.Equal(p.Pixels, []byte{0, 0, 0, 1, 1, 1, 255, 255, 255, 255, 255, 255, 255, 255, 255}) {
		t.Errorf("%v, %v", p, err)
	}
}

// ReadPicture turns a picture as ReadPhoto does.
func TestPictureHasTheOrientationOfExif(t *testing.T) {
	list, err := filepath.Glob(filepath.Join("testdata", "photos", "*turned*.png"))
	if err != nil || len(list) == 0 {
		t.Fatalf("%q, %v", list, err)
	}
	for _, path := range list {
		got, err := ReadFile(path, ReadPicture)
		if err != nil {
			t.Fatal(err)
		}
		want, err := ReadFile(path, ReadPhoto)
		if err != nil || got.Height != want.Height || !bytes.Equal(got.Pixels, want.Pixels) {
			t.Errorf("%s: %d×%d, want %d×%d, %v", path, got.Width, got.Height, want.Width, want.Height, err)
		}
	}
}

func TestMalformedOrientationIsNone(t *testing.T) {
	for _, s := range []string{
		"", "\xff\xd8", "\xff\xd8\xff\xe1\x00\x02", "\xff\xd8\xff\xe1\xff\xffExif\x00\x00", "\xff\xd8\xff\xe1\x00\x0aExif\x00\x00II",
		"\x89PNG\r\n\x1a\n\xff\xff\xff\xffeXIf", "\x89PNG\r\n\x1a\n\x00\x00\x00\x04eXIfII*\x00",
		"\xff\xd8\xff\xe1\x00\x14Exif\x00\x00II*\x00\xff\xff\xff\xff\x00\x00\x00\x00",
		"\xff\xd8\xff\xe1\x00\x12Exif\x00\x00II*\x00\x08\x00\x00\x00\xff\xff",
	} {
		if n := readOrientation([]byte(s)); n != 0 {
			t.Errorf("%q: %d", s, n)
		}
	}
}
