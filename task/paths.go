package task

import (
	"fmt"
	"math"
	"sync"
)

// Paths are drawn as Linsley et al. 2018 (Learning long-range spatial dependencies
// with horizontal gated recurrent units) do, with the numbers that the Long Range
// Arena has for images of 32×32: a path is a chain of dashes, paddles, each of which
// turns away from the one before it at random, the less the likelier. Two paths of
// contour paddles grow in turn from near the middle, then a few shorter ones are
// added, and two discs, one at the beginning of a path and one at the end of the
// same (class 1) or of the other (class 0).
const (
	pathSide   = 32
	pathMargin = 1 // pixels on every side of a paddle that no other path may enter
	pathLength = 2 // of a paddle
	pathApart  = 7 // first paddles of the two paths
	pathTries  = 3 // for a paddle
	// pathAgain is the number of times that a short path is tried.
	pathAgain = 5
	// pathShort is the number of paddles of all short paths together.
	pathShort = 20

	pathContrast  = 1.5 // of paddles of the two; a disc has 1
	shortContrast = 2.0 // of paddles of the short ones
	discRadius    = 1.5

	pathFiner = 2 // times as fine are drawings before they are made smaller
	// stampReach is the number of pixels from the middle of a drawing to its edge,
	// stampSide that from edge to edge.
	stampReach = pathLength + 1 + pathMargin
	stampSide  = 2*stampReach + 1
)

// NewPathfinder returns a generator of images with two paths of so many paddles,
// 3 to 20.
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

// pixel is a pixel.
type pixel struct{ y, x int }

func (p pixel) isInside() bool { return p.y >= 0 && p.y < pathSide && p.x >= 0 && p.x < pathSide }

// movedBy returns the place at a distance in a direction, rounded up.
func (p pixel) movedBy(angle, distance float64) pixel {
	y, x := float64(distance*math.Sin(angle)), float64(distance*math.Cos(angle)) // not fused with the sums
	return pixel{int(math.Ceil(float64(p.y) + y)), int(math.Ceil(float64(p.x) + x))}
}

// pixelField is a number for each pixel.
type pixelField [pathSide][pathSide]float64

// stamp is a drawing around the place in its middle.
type stamp [stampSide][stampSide]float64

// stampMax raises f to the stamp's numbers, times scale, around a place.
func (f *pixelField) stampMax(s *stamp, at pixel, scale float64) {
	for r, row := range s {
		for c, v := range row {
			if p := (pixel{at.y + r - stampReach, at.x + c - stampReach}); p.isInside() {
				f[p.y][p.x] = max(f[p.y][p.x], scale*v)
			}
		}
	}
}

// paddle is the drawing of one, from the place in the middle of its stamps, and of
// the room that it takes.
type paddle struct{ line, room stamp }

// paddles are those by where they end, in pixels of the finer drawing, from where
// they begin.
var paddles = sync.OnceValue(func() *[2*pathFiner*pathLength + 1][2*pathFiner*pathLength + 1]paddle {
	const most = pathFiner * pathLength
	list := new([2*most + 1][2*most + 1]paddle)
	for y := range list {
		for x := range list[y] {
			list[y][x] = drawPaddle(pixel{y - most, x - most})
		}
	}
	return list
})

// paddleToward returns the paddle in a direction.
func paddleToward(angle float64) *paddle {
	const most = pathFiner * pathLength
	const middle = pathFiner * stampReach // added before rounding up, as in the original
	end := pixel{middle, middle}.movedBy(angle, most)
	return &paddles()[end.y-middle+most][end.x-middle+most]
}

// drawPaddle draws the paddle that ends at a place, from the middle.
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

// bresenhamLine returns the pixels from 0, 0 to an end, by Bresenham's algorithm.
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

// shrinkLanczos makes a square drawing smaller, to so many pixels on a side: by Lanczos'
// filter of three lobes, first across and then down, each rounded to bytes.
func shrinkLanczos(from [][]byte, side int) [][]byte {
	scale := float64(len(from)) / float64(side)
	weights := make([][]float64, side)
	first := make([]int, side)
	for i := range side {
		center := (float64(i) + 0.5) * scale
		first[i] = max(int(center-3*scale+0.5), 0)
		end, sum := min(int(center+3*scale+0.5), len(from)), 0.
		for j := first[i]; j < end; j++ {
			w := lanczosWeight((float64(j) - center + 0.5) / scale)
			weights[i] = append(weights[i], w)
			sum += w
		}
		for j := range weights[i] {
			weights[i][j] /= sum
		}
	}
	across := make([][]byte, len(from))
	for y, row := range from {
		across[y] = make([]byte, side)
		for x := range side {
			sum := 0.
			for j, w := range weights[x] {
				sum += float64(w * float64(row[first[x]+j])) // the same where machines fuse
			}
			across[y][x] = toByte(sum)
		}
	}
	to := make([][]byte, side)
	for y := range side {
		to[y] = make([]byte, side)
		for x := range side {
			sum := 0.
			for j, w := range weights[y] {
				sum += float64(w * float64(across[first[y]+j][x]))
			}
			to[y][x] = toByte(sum)
		}
	}
	return to
}

func toByte(x float64) byte { return byte(min(max(x, 0), 255) + 0.5) }

// lanczosWeight is sinc(x)·sinc(x/3) within three lobes.
func lanczosWeight(x float64) float64 {
	if x == 0 {
		return 1
	}
	if x <= -3 || x >= 3 {
		return 0
	}
	x *= math.Pi
	return math.Sin(x) / x * math.Sin(x/3) / (x / 3)
}

// disc is the drawing of one around the place in its middle.
var disc = sync.OnceValue(func() *stamp {
	// Places of a whole image are even in its finer drawing, which begins at its
	// edge: of one this large, the middle has nothing of the edges.
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

// pathPicture is an image while it is drawn.
type pathPicture struct {
	draws *randomDraws
	light pixelField // what is seen
	taken pixelField // where no more can be drawn, up to 1
}

// path is one while it grows.
type path struct {
	contrast   float64
	pivot      pixel   // from which the next paddle is reckoned
	angle      float64 // of the last paddle
	begin, end pixel
	last       *stamp // room of the last paddle, which is not taken yet
	at         pixel  // of its stamp
}

// discMark is a disc, and which of the two paths it is on.
type discMark struct {
	at   pixel
	path int
}

// drawImage draws all, and returns the class and the discs.
func (p *pathPicture) drawImage(contour int) (label int32, discs [2]discMark) {
	label = int32(p.draws.intn(2))
	var two [2]path
	for ok := false; !ok; {
		p.light, p.taken = pixelField{}, pixelField{}
		for i := range pathSide {
			p.taken[0][i], p.taken[pathSide-1][i], p.taken[i][0], p.taken[i][pathSide-1] = 1, 1, 1, 1
		}
		two = [2]path{{contrast: pathContrast}, {contrast: pathContrast}}
		ok = p.drawLongPaths(&two, contour)
	}
	// Of the two last paddles only the second's takes its room, as in the original.
	p.taken.stampMax(two[1].last, two[1].at, 1)
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
		p.light.stampMax(disc(), d.at, 1)
	}
	return label, discs
}

// drawLongPaths draws both paths, or reports that a paddle has found no place.
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

// drawShortPath draws a path of so many paddles where there is room for it.
func (p *pathPicture) drawShortPath(paddles int) {
	before := *p
	for range pathAgain {
		x := path{contrast: shortContrast}
		ok := p.hasRoom() && p.beginPath(&x, func(angle float64) (pixel, bool) { return p.pickFreePixel(angle, 1) })
		for i := 1; i < paddles && ok; i++ {
			ok = p.extendPath(&x)
		}
		if ok {
			p.taken.stampMax(x.last, x.at, 1)
			return
		}
		p.light, p.taken = before.light, before.taken
	}
}

// hasRoom reports that a hundredth of the pixels is not taken.
func (p *pathPicture) hasRoom() bool {
	n := 0
	for y := range p.taken {
		for _, v := range p.taken[y] {
			if v <= maxTaken {
				n++
			}
		}
	}
	return float64(n)/(pathSide*pathSide) >= 0.01
}

// maxTaken is how much of a pixel may be taken for a path to begin there.
const maxTaken = 0.3

// pickFreePixel returns a random place at which a paddle in a direction meets nothing that
// is taken, nor the pixels within so many of the edge, and whether there is one. As
// in images of the original, there is one only for paddles that point up and to the
// left, by 30 to 60 degrees: those whose room reaches the pixel before their first
// in both directions. That rule was found from such images (TestPathsAreTheOriginals).
func (p *pathPicture) pickFreePixel(angle float64, edge int) (pixel, bool) {
	s := &paddleToward(angle).room
	if s[stampReach-1][stampReach-1] < 1 {
		return pixel{}, false
	}
	var meets []pixel // pixels of a paddle, as seen from one before its first
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
			if q.isInside() && (min(q.y, q.x) < edge || max(q.y, q.x) >= pathSide-edge || p.taken[q.y][q.x] > maxTaken) {
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

// beginPath draws the first paddle of a path from where choose says.
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

func oppositeAngle(angle float64) float64 {
	if angle < 0 {
		return angle + math.Pi
	}
	return angle - math.Pi
}

// addPaddle draws a paddle of x.
func (p *pathPicture) addPaddle(x *path, from pixel, angle float64) {
	d := paddleToward(angle)
	p.light.stampMax(&d.line, from, x.contrast)
	x.last, x.at = &d.room, from
}

// extendPath draws the next paddle of a path, whose end lies on a circle around the
// pivot: where it turns by a, with weight cos²a, and where nothing is taken.
func (p *pathPicture) extendPath(x *path) bool {
	pivot := x.pivot.movedBy(x.angle, pathLength+2*pathMargin)
	const radius = pathLength + pathMargin
	step := 1. / radius         // radians of an arc as long as a pixel
	const window = 2*radius + 3 // within a pixel of the circle
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
			w := math.Cos(turn) * math.Cos(turn) * (1 - p.maxTakenAround(end))
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
		if p.hitsTaken(&paddleToward(back).room, list[i]) {
			continue
		}
		p.taken.stampMax(x.last, x.at, 1)
		x.pivot, x.angle, x.end = pivot, angles[i], list[i]
		p.addPaddle(x, list[i], back)
		return true
	}
	return false
}

// maxTakenAround returns the most that is taken of a pixel and its four neighbours.
func (p *pathPicture) maxTakenAround(at pixel) (most float64) {
	for _, d := range [5]pixel{{0, 0}, {-1, 0}, {1, 0}, {0, -1}, {0, 1}} {
		if q := (pixel{at.y + d.y, at.x + d.x}); q.isInside() {
			most = max(most, p.taken[q.y][q.x])
		}
	}
	return most
}

// hitsTaken reports a stamp that lies on what is taken.
func (p *pathPicture) hitsTaken(s *stamp, at pixel) bool {
	for r, row := range s {
		for c, v := range row {
			if q := (pixel{at.y + r - stampReach, at.x + c - stampReach}); q.isInside() && p.taken[q.y][q.x]+v >= 1.8 {
				return true
			}
		}
	}
	return false
}

// greyLevels returns the image, whose brightest pixel is 255.
func (p *pathPicture) greyLevels() []byte {
	most := 0.
	for y := range p.light {
		for _, v := range p.light[y] {
			most = max(most, v)
		}
	}
	list := make([]byte, 0, pathSide*pathSide)
	for y := range p.light {
		for _, v := range p.light[y] {
			list = append(list, toByte(v*255/most))
		}
	}
	return list
}
