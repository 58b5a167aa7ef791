package task

import (
	"fmt"
	"math"
	"sync"

	"github.com/farfield-ml/farfield/internal/dataset"
)

// Paths follow Linsley et al. 2018 (Learning long-range spatial dependencies with horizontal
// gated recurrent units), with the constants of the Long Range Arena for images of 32×32. A
// path is a chain of dashes, called paddles. Each paddle turns from the previous one by a
// random angle; small angles are likelier. Two paths of contour paddles grow in turn from near
// the middle, then shorter paths are added. One disc marks the beginning of a path, another
// the end of the same path (class 1) or of the other path (class 0).
const (
	pathSide   = 32
	pathMargin = 1 // pixels around a paddle that no other path may enter
	pathLength = 2 // pixels of a paddle
	pathApart  = 7 // pixels between the first paddles of the two paths
	pathTries  = 3 // attempts to place a paddle
	// pathAgain is the number of attempts to draw a short path.
	pathAgain = 5
	// pathShort is the number of paddles of all short paths together.
	pathShort = 20

	pathContrast  = 1.5 // brightness of the two paths; a disc has 1
	shortContrast = 2.0 // brightness of short paths
	discRadius    = 1.5

	pathFiner = 2 // resolution of drawings before they are scaled down, relative to the image
	// stampReach is the number of pixels from the middle of a stamp to its edge, stampSide the
	// number from edge to edge.
	stampReach = pathLength + 1 + pathMargin
	stampSide  = 2*stampReach + 1
)

// NewPathfinder returns a generator of images with two paths of contour paddles. It returns an
// error if contour is outside 3 to 20.
func NewPathfinder(contour int, seed uint64) (*Pathfinder, error) {
	if contour < 3 || contour > 20 {
		return nil, fmt.Errorf("contour: it is %d, 3 to 20 are possible", contour)
	}
	t := &Pathfinder{count: [3]int{Endless, Endless, Endless}}
	t.readImage = func(split Split, i int) ([]byte, int32, error) {
		p := pathPicture{draws: newDraws(seed, split, i)}
		label, _ := p.drawImage(contour)
		return p.greyLevels(), label, nil
	}
	return t, nil
}

// pixel is the position of a pixel.
type pixel struct{ y, x int }

// isInside reports whether the pixel lies in the image.
func (p pixel) isInside() bool { return p.y >= 0 && p.y < pathSide && p.x >= 0 && p.x < pathSide }

// movedBy returns the pixel at a distance in a direction, rounded up.
func (p pixel) movedBy(angle, distance float64) pixel {
	y, x := float64(distance*math.Sin(angle)), float64(distance*math.Cos(angle)) // the conversions prevent fused multiply-adds
	return pixel{int(math.Ceil(float64(p.y) + y)), int(math.Ceil(float64(p.x) + x))}
}

// pixelField has a number for each pixel.
type pixelField [pathSide][pathSide]float64

// stamp is a drawing around the pixel in its middle.
type stamp [stampSide][stampSide]float64

// stampMax raises f to at least scale times the stamp, around a pixel.
func (f *pixelField) stampMax(s *stamp, at pixel, scale float64) {
	for r, row := range s {
		for c, v := range row {
			if p := (pixel{at.y + r - stampReach, at.x + c - stampReach}); p.isInside() {
				f[p.y][p.x] = max(f[p.y][p.x], scale*v)
			}
		}
	}
}

// paddle holds the stamps of a paddle and of the room that it takes. The paddle begins in the
// middle of both.
type paddle struct{ line, room stamp }

// paddles returns all paddles by their end relative to their beginning, in pixels of the finer
// drawing.
var paddles = sync.OnceValue(func() *[2*pathFiner*pathLength + 1][2*pathFiner*pathLength + 1]paddle {
	const reach = pathFiner * pathLength
	list := new([2*reach + 1][2*reach + 1]paddle)
	for y := range list {
		for x := range list[y] {
			list[y][x] = drawPaddle(pixel{y - reach, x - reach})
		}
	}
	return list
})

// paddleToward returns the paddle in a direction.
func paddleToward(angle float64) *paddle {
	const reach = pathFiner * pathLength
	const middle = pathFiner * stampReach // added before rounding up, as the original does
	end := pixel{middle, middle}.movedBy(angle, reach)
	return &paddles()[end.y-middle+reach][end.x-middle+reach]
}

// drawPaddle draws the paddle from the middle of its stamps to an end.
func drawPaddle(end pixel) (p paddle) {
	const side, middle = 2*pathFiner*stampReach + 1, pathFiner * stampReach
	fine := make([][]byte, side)
	room := make([][]byte, side)
	for i := range fine {
		fine[i], room[i] = make([]byte, side), make([]byte, side)
	}
	for _, at := range bresenhamLine(end) {
		fine[middle+at.y][middle+at.x] = 255
		const reach = pathMargin * pathFiner
		for y := -reach; y <= reach; y++ {
			for x := -reach; x <= reach; x++ {
				if y*y+x*x <= reach*reach {
					room[middle+at.y+y][middle+at.x+x] = 255
				}
			}
		}
	}
	for r, row := range shrinkLanczos(fine, stampSide) {
		for c, v := range row {
			p.line[r][c] = float64(v) / 255
		}
	}
	for r, row := range shrinkLanczos(room, stampSide) {
		for c, v := range row {
			p.room[r][c] = float64(v) / 255
		}
	}
	return p
}

// bresenhamLine returns the pixels from (0, 0) to end.
func bresenhamLine(end pixel) (list []pixel) {
	dy, dx := max(end.y, -end.y), max(end.x, -end.x)
	sign := func(x int) int {
		if x < 0 {
			return -1
		}
		return 1
	}
	var at pixel
	long, short := dx, dy
	if dy >= dx {
		long, short = dy, dx
	}
	e := 2*short - long
	for range long {
		list = append(list, at)
		if e >= 0 && short > 0 {
			if e -= 2 * long; dy >= dx {
				at.x += sign(end.x)
			} else {
				at.y += sign(end.y)
			}
		}
		if e += 2 * short; dy >= dx {
			at.y += sign(end.y)
		} else {
			at.x += sign(end.x)
		}
	}
	return append(list, end)
}

// shrinkLanczos scales a square drawing down to [side, side] by Lanczos' filter of three lobes.
func shrinkLanczos(from [][]byte, side int) [][]byte {
	p := &dataset.Picture{Height: len(from), Width: len(from), Pixels: make([]byte, 0, 3*len(from)*len(from))}
	for _, row := range from {
		for _, v := range row {
			p.Pixels = append(p.Pixels, v, v, v)
		}
	}
	p = dataset.LanczosSampling.Resize(p, side, side)
	to := make([][]byte, side)
	for y := range to {
		to[y] = make([]byte, side)
		for x := range to[y] {
			to[y][x] = p.Pixels[3*(y*side+x)]
		}
	}
	return to
}

// disc returns the stamp of a disc.
var disc = sync.OnceValue(func() *stamp {
	// The finer drawing begins at the image's edge, so image pixels lie at even positions. A
	// drawing of this size keeps the disc clear of the edges.
	const side, middle = 32, 16
	fine := make([][]byte, side*pathFiner)
	for y := range fine {
		fine[y] = make([]byte, side*pathFiner)
		for x := range fine[y] {
			dy, dx := float64(y-middle*pathFiner), float64(x-middle*pathFiner)
			if dy*dy+dx*dx <= discRadius*discRadius*pathFiner*pathFiner {
				fine[y][x] = 255
			}
		}
	}
	s := new(stamp)
	small := shrinkLanczos(fine, side)
	for r := range s {
		for c := range s[r] {
			s[r][c] = float64(small[middle+r-stampReach][middle+c-stampReach]) / 255
		}
	}
	return s
})

// pathPicture is an image that is being drawn.
type pathPicture struct {
	draws      *randomDraws
	brightness pixelField // brightness
	occupied   pixelField // 0: free, 1: nothing more can be drawn
}

// path is a path that is being drawn.
type path struct {
	contrast   float64
	pivot      pixel   // origin of the next paddle
	angle      float64 // direction of the last paddle
	begin, end pixel
	last       *stamp // room of the last paddle, not occupied yet
	lastAt     pixel  // position of last
}

// discMark is a disc with the index of its path.
type discMark struct {
	centre pixel
	path   int
}

// drawImage draws the whole image and returns its class and discs.
func (p *pathPicture) drawImage(contour int) (label int32, discs [2]discMark) {
	label = int32(p.draws.intn(2))
	var two [2]path
	for ok := false; !ok; {
		p.brightness, p.occupied = pixelField{}, pixelField{}
		for i := range pathSide {
			p.occupied[0][i], p.occupied[pathSide-1][i], p.occupied[i][0], p.occupied[i][pathSide-1] = 1, 1, 1, 1
		}
		two = [2]path{{contrast: pathContrast}, {contrast: pathContrast}}
		ok = p.drawLongPaths(&two, contour)
	}
	// Only the second path's last paddle occupies its room, as in the original.
	p.occupied.stampMax(two[1].last, two[1].lastAt, 1)
	for range pathShort / (contour / 3) {
		p.drawShortPath(contour / 3)
	}
	from := p.draws.intn(2)
	to := from
	if label == 0 {
		to = 1 - from
	}
	discs = [2]discMark{{two[from].begin, from}, {two[to].end, to}}
	for _, d := range discs {
		p.brightness.stampMax(disc(), d.centre, 1)
	}
	return label, discs
}

// drawLongPaths draws both paths. It returns false if a paddle cannot be placed.
func (p *pathPicture) drawLongPaths(two *[2]path, contour int) bool {
	if !p.beginPath(&two[0], func(angle float64) (pixel, bool) { return p.pickFreePixel(angle, 2*pathApart) }) {
		return false
	}
	apart := func(float64) (pixel, bool) {
		angle := float64(p.draws.intn(360)) * math.Pi / 180
		return pixel{
			int(math.RoundToEven(float64(two[0].begin.y) + float64(pathApart*math.Sin(angle)))),
			int(math.RoundToEven(float64(two[0].begin.x) + float64(pathApart*math.Cos(angle)))),
		}, true
	}
	if !p.beginPath(&two[1], apart) {
		return false
	}
	for range contour - 1 {
		for i := range two {
			if !p.extendPath(&two[i]) {
				return false
			}
		}
	}
	return true
}

// drawShortPath draws a path with a number of paddles, or nothing if there is no room.
func (p *pathPicture) drawShortPath(paddles int) {
	before := *p
	for range pathAgain {
		x := path{contrast: shortContrast}
		ok := p.hasRoom() && p.beginPath(&x, func(angle float64) (pixel, bool) { return p.pickFreePixel(angle, 1) })
		for i := 1; i < paddles && ok; i++ {
			ok = p.extendPath(&x)
		}
		if ok {
			p.occupied.stampMax(x.last, x.lastAt, 1)
			return
		}
		p.brightness, p.occupied = before.brightness, before.occupied
	}
}

// hasRoom reports whether at least a hundredth of the pixels is free.
func (p *pathPicture) hasRoom() bool {
	n := 0
	for y := range p.occupied {
		for _, v := range p.occupied[y] {
			if v <= maxOccupancy {
				n++
			}
		}
	}
	return float64(n)/(pathSide*pathSide) >= 0.01
}

// maxOccupancy bounds the occupancy of a pixel at which a path may begin.
const maxOccupancy = 0.3

// pickFreePixel returns a random pixel at which a paddle of the given direction meets no occupied
// pixel, and none closer to the edge than edge. It returns false if there is none. As in the
// original images, a pixel exists only for paddles that point up and left by 30 to 60 degrees,
// because the room of a paddle includes the pixel before its first one in both directions. The rule
// was derived from such images (TestPathsAreTheOriginals).
func (p *pathPicture) pickFreePixel(angle float64, edge int) (pixel, bool) {
	s := &paddleToward(angle).room
	if s[stampReach-1][stampReach-1] < 1 {
		return pixel{}, false
	}
	var meets []pixel // pixels of a paddle, relative to the pixel before its first
	for r := range stampSide - 2 {
		for c := range stampSide - 2 {
			if s[r][c] == 1 {
				meets = append(meets, pixel{r - stampReach + 1, c - stampReach + 1})
			}
		}
	}
	taken := func(at pixel) bool {
		for _, m := range meets {
			q := pixel{at.y + m.y, at.x + m.x}
			if q.isInside() && (min(q.y, q.x) < edge || max(q.y, q.x) >= pathSide-edge || p.occupied[q.y][q.x] > maxOccupancy) {
				return true
			}
		}
		return false
	}
	var list []pixel
	for y := range pathSide {
		for x := range pathSide {
			if at := (pixel{y, x}); !taken(at) {
				list = append(list, at)
			}
		}
	}
	if len(list) == 0 {
		return pixel{}, false
	}
	return list[p.draws.intn(len(list))], true
}

// beginPath draws the first paddle of a path at a pixel that choose returns. It returns false
// if choose does, or if no attempt fits the image.
func (p *pathPicture) beginPath(x *path, choose func(angle float64) (pixel, bool)) bool {
	for range pathTries {
		angle := float64(p.draws.intn(360)-180) * math.Pi / 180
		tail, ok := choose(angle)
		if !ok {
			return false
		}
		head := tail.movedBy(angle, pathLength)
		pivot := head.movedBy(oppositeAngle(angle), pathLength+pathMargin)
		if !head.isInside() || !pivot.isInside() {
			continue
		}
		x.begin, x.pivot, x.angle = tail, pivot, angle
		p.addPaddle(x, tail, angle)
		return true
	}
	return false
}

// oppositeAngle returns the opposite direction, within [-π, π].
func oppositeAngle(angle float64) float64 {
	if angle < 0 {
		return angle + math.Pi
	}
	return angle - math.Pi
}

// addPaddle draws a paddle of path x.
func (p *pathPicture) addPaddle(x *path, from pixel, angle float64) {
	d := paddleToward(angle)
	p.brightness.stampMax(&d.line, from, x.contrast)
	x.last, x.lastAt = &d.room, from
}

// extendPath draws the next paddle of a path. Its end lies on a circle around the pivot. A turn
// by a has weight cos²a times the free share of the end. It returns false if no end is free.
func (p *pathPicture) extendPath(x *path) bool {
	pivot := x.pivot.movedBy(x.angle, pathLength+2*pathMargin)
	const radius = pathLength + pathMargin
	step := 1. / radius         // angle of an arc of one pixel
	const window = 2*radius + 3 // side of a square around the circle
	var ends [window][window]bool
	corner := pixel{pivot.y - radius - 1, pivot.x - radius - 1}
	for a := 0.; a < 2*math.Pi; a += step {
		y, q := float64(pivot.y)+float64(radius*math.Sin(a)), float64(pivot.x)+float64(radius*math.Cos(a))
		if y >= 0 && y < pathSide && q >= 0 && q < pathSide {
			ends[int(y)-corner.y][int(q)-corner.x] = true
		}
	}
	var list []pixel
	var angles, weights []float64
	total := 0.
	for r := range ends {
		for c, is := range ends[r] {
			if !is {
				continue
			}
			end := pixel{corner.y + r, corner.x + c}
			angle := math.Atan2(float64(end.y-pivot.y), float64(end.x-pivot.x))
			turn := math.Abs(angle - x.angle)
			turn = min(turn, 2*math.Pi-turn, math.Pi/2)
			w := math.Cos(turn) * math.Cos(turn) * (1 - p.maxOccupancyAround(end))
			list, angles, weights = append(list, end), append(angles, angle), append(weights, w)
			total += w
		}
	}
	if total < 1e-4 {
		return false
	}
	for range pathTries {
		i, r := 0, p.draws.float()*total
		for sum := weights[0]; sum <= r && i < len(list)-1; sum += weights[i] {
			i++
		}
		back := oppositeAngle(angles[i])
		if p.hitsOccupied(&paddleToward(back).room, list[i]) {
			continue
		}
		p.occupied.stampMax(x.last, x.lastAt, 1)
		x.pivot, x.angle, x.end = pivot, angles[i], list[i]
		p.addPaddle(x, list[i], back)
		return true
	}
	return false
}

// maxOccupancyAround returns the largest occupancy of a pixel and its four neighbours.
func (p *pathPicture) maxOccupancyAround(at pixel) (most float64) {
	for _, d := range [5]pixel{{0, 0}, {-1, 0}, {1, 0}, {0, -1}, {0, 1}} {
		if q := (pixel{at.y + d.y, at.x + d.x}); q.isInside() {
			most = max(most, p.occupied[q.y][q.x])
		}
	}
	return most
}

// hitsOccupied reports whether a stamp overlaps occupied pixels.
func (p *pathPicture) hitsOccupied(s *stamp, at pixel) bool {
	for r, row := range s {
		for c, v := range row {
			if q := (pixel{at.y + r - stampReach, at.x + c - stampReach}); q.isInside() && p.occupied[q.y][q.x]+v >= 1.8 {
				return true
			}
		}
	}
	return false
}

// greyLevels returns the image [32, 32], scaled so that the brightest pixel is 255.
func (p *pathPicture) greyLevels() []byte {
	most := 0.
	for y := range p.brightness {
		for _, v := range p.brightness[y] {
			most = max(most, v)
		}
	}
	list := make([]byte, 0, pathSide*pathSide)
	for y := range p.brightness {
		for _, v := range p.brightness[y] {
			list = append(list, toByte(v*255/most))
		}
	}
	return list
}

// toByte rounds x to a byte, with saturation.
func toByte(x float64) byte { return byte(min(max(x, 0), 255) + 0.5) }
