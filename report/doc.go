// Package report shows what was measured: drawings, tables, and pages of them as
// HTML and as Markdown.
//
// A Page is sections of text, tables, figures and pictures; HTML is one file that needs
// no other, with figures as inline SVG. A Figure is series of points over axes with
// names, logarithmic unless it says otherwise; units stand in the names. Series whose
// values do not fit each other, and points that the axes cannot show, are errors that
// name the series, the point and its values.
package report
