package task

import (
	"math"
	"testing"
)

// pathFigures are statistics of images alone.
type pathFigures struct {
	black, lit float64 // shares of pixels of 0, and of 20 or more
	grey       float64 // mean of all pixels
	pieces     float64 // mean number of connected pieces of lit pixels, corners count
	shining    float64 // share of the images in which nothing outshines the discs
	one        float64 // share of class 1
	down, up   float64 // vertical paddles of short paths, by where they are drawn to
}

// measurePaths measures n images of a split.
func measurePaths(t *testing.T, src Source, split Split, n int) (f pathFigures, shares histogram) {
	t.Helper()
	for i := range n {
		s := take(t, src, split, i)
		f.one += float64(s.Class)
		var seen [1024]bool
		var disc int32
		for at, v := range s.Tokens {
			f.grey += float64(v)
			shares[v/32] += 1 / float64(1024*n)
			if v == 0 {
				f.black++
			}
			if v >= 20 {
				f.lit++
				if !seen[at] {
					f.pieces++
					flood(&seen, s.Tokens, at)
				}
			}
			y, x := at/32, at%32
			if y < 31 && x < 31 { // four pixels that only a disc has
				disc = max(disc, min(v, s.Tokens[at+1], s.Tokens[at+32], s.Tokens[at+33]))
			}
			if y < 30 {
				switch [3]int32{v, s.Tokens[at+32], s.Tokens[at+64]} {
				case [3]int32{177, 255, 201}:
					f.down++
				case [3]int32{201, 255, 177}:
					f.up++
				}
			}
		}
		if disc == 228 { // of 1, the largest there is then
			f.shining++
		}
	}
	for _, x := range []*float64{&f.black, &f.lit, &f.grey} {
		*x /= float64(1024 * n)
	}
	for _, x := range []*float64{&f.pieces, &f.shining, &f.one, &f.down, &f.up} {
		*x /= float64(n)
	}
	return f, shares
}

// flood marks the connected lit pixels around a pixel.
func flood(seen *[1024]bool, pixels []int32, at int) {
	seen[at] = true
	for y := max(at/32-1, 0); y <= min(at/32+1, 31); y++ {
		for x := max(at%32-1, 0); x <= min(at%32+1, 31); x++ {
			if next := 32*y + x; pixels[next] >= 20 && !seen[next] {
				flood(seen, pixels, next)
			}
		}
	}
}

// histogram counts pixels by their brightness, 32 values at a time.
type histogram [8]float64

// original holds statistics of images that the original program made with the constants of the
// Long Range Arena: 4000 of contour 14, 2000 of contour 6. Deviations are per image.
type original struct {
	mean, deviation pathFigures
	shares          histogram
}

var originals = map[string]original{
	"14": {
		pathFigures{black: 0.6594, lit: 0.1571, grey: 20.137, pieces: 12.480, shining: 0.3435, one: 0.5, down: 0.3030, up: 0.0678},
		pathFigures{black: 0.0387, lit: 0.0170, grey: 2.004, pieces: 3.190, shining: 0.475, one: 0.5, down: 0.608, up: 0.277},
		histogram{0.8553, 0.0193, 0.0193, 0.0210, 0.0391, 0.0269, 0.0123, 0.0068},
	},
	"6": {
		pathFigures{black: 0.7741, lit: 0.0979, grey: 12.933, pieces: 6.871, shining: 0.1840, one: 0.5, down: 0.3570},
		pathFigures{black: 0.0335, lit: 0.0131, grey: 1.742, pieces: 2.304, shining: 0.387, one: 0.5, down: 0.589},
		histogram{0.9107, 0.0135, 0.0102, 0.0136, 0.0178, 0.0172, 0.0105, 0.0066},
	},
}

// Counts differ from the original's images by at most 4 standard errors, and shares of
// brightness by 6 per cent. With paths that may begin in any direction, as the original's text
// reads, 38 per cent more pixels would be lit with contour 14.
func TestPathsAreTheOriginals(t *testing.T) {
	const n = 400
	for contour, want := range originals {
		src := openSource(t, "pathfinder", Options{Seed: 5}, "from", "generated", "contour", contour)
		want.hold(t, contour, src, Train, n)
	}
}

// The statistics of originals are confirmed by the real files.
func TestRealPathfinderFilesHaveTheOriginalsFigures(t *testing.T) {
	folder := sharedData(t)
	for contour, want := range originals {
		want.hold(t, contour, openSource(t, "pathfinder", Options{Folder: folder}, "contour", contour), Train, 1600)
	}
}

func (o *original) hold(t *testing.T, contour string, src Source, split Split, n int) {
	t.Helper()
	got, shares := measurePaths(t, src, split, n)
	m, d := &o.mean, &o.deviation
	for _, x := range []struct {
		name                 string
		got, want, deviation float64
	}{
		{"share of black pixels", got.black, m.black, d.black},
		{"share of lit pixels", got.lit, m.lit, d.lit},
		{"mean of the pixels", got.grey, m.grey, d.grey},
		{"pieces", got.pieces, m.pieces, d.pieces},
		{"share of images whose discs are brightest", got.shining, m.shining, d.shining},
		{"share of class 1", got.one, m.one, d.one},
		{"vertical paddles drawn downwards", got.down, m.down, d.down},
		{"vertical paddles drawn upwards", got.up, m.up, d.up},
	} {
		if limit := 4 * x.deviation / math.Sqrt(float64(n)); !(math.Abs(x.got-x.want) <= limit) {
			t.Errorf("contour %s: %s: %.4f, the original has %.4f, further than %.4f", contour, x.name, x.got, x.want, limit)
		}
	}
	for i, x := range shares {
		if want := o.shares[i]; math.Abs(x-want) > 0.06*want {
			t.Errorf("contour %s: share of pixels of %d to %d is %.4f, the original has %.4f", contour, 32*i, 32*i+31, x, want)
		}
	}
}

// Paths that are followed from a disc to the ends of paddles give the label: class 1 has both
// discs at the ends of one path.
func TestPathsHaveTheirLabel(t *testing.T) {
	var share float64
	const n = 200
	for i := range n {
		p := pathPicture{draws: newDraws(6, Test, i)}
		label, discs := p.drawImage(6)
		share += float64(label) / n
		if same := discs[0].path == discs[1].path; same != (label == 1) {
			t.Errorf("image %d: label %d, discs on one path: %t", i, label, same)
		}
		for _, d := range discs {
			for _, at := range []pixel{d.centre, {d.centre.y - 1, d.centre.x - 1}} {
				if at.isInside() && p.brightness[at.y][at.x] < 0.85 {
					t.Errorf("image %d: no disc at %v", i, d.centre)
				}
			}
		}
	}
	if math.Abs(share-0.5) > 4*0.5/math.Sqrt(n) {
		t.Errorf("%.3f of the images are of class 1", share)
	}
}

func TestGeneratedPathfinderIsEndless(t *testing.T) {
	src := openSource(t, "pathfinder", Options{Seed: 5}, "from", "generated", "contour", "9")
	holds(t, src)
	if got := src.Spec().Count; got != [3]int{Endless, Endless, Endless} {
		t.Errorf("samples %v", got)
	}
	if _, err := NewPathfinder(2, 1); err == nil || err.Error() != "contour: it is 2, 3 to 20 are possible" {
		t.Errorf("error is %v", err)
	}
}
