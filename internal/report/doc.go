// Package report draws figures and tables, and writes pages of them as HTML and as
// Markdown.
//
// A Page holds sections of text, tables, figures and pictures. Its HTML is one
// self-contained file with figures as inline SVG. A Figure draws series of points over
// labelled axes, logarithmic by default; labels name the units. Invalid series and points
// outside the range of the axes are errors that name the series, the point and its
// values.
package report
