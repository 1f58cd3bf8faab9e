package schema

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"terrace/grammar"
)

func escapePointer(s string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(s)
}

// document finds what references point to.
type document struct {
	root    *value
	old     bool // a draft before 2019-09: keywords beside $ref mean nothing
	bases   map[*value]*url.URL
	named   map[string]*value // absolute URIs without fragment
	anchors map[string]*value // URI#anchor
}

func newDocument(root *value) *document {
	d := &document{root: root, bases: map[*value]*url.URL{}, named: map[string]*value{}, anchors: map[string]*value{}}
	if s := root.get("$schema"); root.kind == '{' && s != nil {
		for _, draft := range []string{"draft-03", "draft-04", "draft-05", "draft-06", "draft-07"} {
			d.old = d.old || strings.Contains(s.text, draft)
		}
	}
	base, _ := url.Parse("schema:/")
	d.index(root, base)
	return d
}

// index notes identifiers. They are looked for everywhere but in values.
func (d *document) index(v *value, base *url.URL) {
	if v.kind == '{' {
		base = d.identify(v, base)
	}
	d.bases[v] = base
	for _, m := range v.members {
		if m.name != "enum" && m.name != "const" && m.name != "default" && m.name != "examples" {
			d.index(m.value, base)
		}
	}
	for _, item := range v.items {
		d.index(item, base)
	}
}

func (d *document) identify(v *value, base *url.URL) *url.URL {
	id := v.get("$id")
	if id == nil {
		id = v.get("id")
	}
	if id != nil && id.kind == '"' && (!d.old || v.get("$ref") == nil) {
		if u, err := base.Parse(id.text); err == nil {
			if anchor := u.Fragment; anchor != "" {
				d.anchors[bare(base)+"#"+anchor] = v
			}
			if strings.TrimSuffix(id.text, "#") != "" && !strings.HasPrefix(id.text, "#") {
				base = u
				d.named[bare(u)] = v
			}
		}
	}
	for _, name := range []string{"$anchor", "$dynamicAnchor"} {
		if a := v.get(name); a != nil && a.kind == '"' {
			d.anchors[bare(base)+"#"+a.text] = v
		}
	}
	return base
}

func bare(u *url.URL) string {
	c := *u
	c.Fragment, c.RawFragment, c.OmitHost = "", "", c.Host == "" // a parsed and a resolved URI are written alike
	return c.String()
}

// resolve is what a reference at a place points to.
func (d *document) resolve(at *value, ref string) (*value, error) {
	fail := func(why string) (*value, error) {
		return nil, fmt.Errorf("schema: %s: $ref %q: %s: %w", place(at), ref, why, grammar.ErrUnsupported)
	}
	base, ok := d.bases[at]
	if !ok {
		base = d.bases[d.root]
	}
	u, err := base.Parse(ref)
	if err != nil {
		return nil, fmt.Errorf("schema: %s: $ref %q: %w", place(at), ref, grammar.ErrSyntax)
	}
	var top *value
	if top, ok = d.named[bare(u)]; !ok && (bare(u) == "schema:/" || strings.HasPrefix(ref, "#")) {
		top, ok = d.root, true
	}
	if !ok {
		return fail("it is not in this document, and nothing is fetched")
	}
	if u.Fragment == "" {
		return top, nil
	}
	if !strings.HasPrefix(u.Fragment, "/") {
		if v, ok := d.anchors[bare(u)+"#"+u.Fragment]; ok {
			return v, nil
		}
		return fail("there is no such anchor")
	}
	v := top
	for _, step := range strings.Split(u.Fragment[1:], "/") {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		next := v.get(step)
		if v.kind == '[' {
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(v.items) {
				next = v.items[i]
			}
		}
		if next == nil {
			return nil, fmt.Errorf("schema: %s: $ref %q points to nothing: %w", place(at), ref, grammar.ErrSyntax)
		}
		v = next
	}
	return v, nil
}

// place names a value for messages.
func place(v *value) string {
	if v.path == "" {
		return "at the top"
	}
	return "at #" + v.path
}
