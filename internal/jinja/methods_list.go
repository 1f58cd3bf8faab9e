package jinja

import "slices"

func (r *run) view(name string, items []any) *List {
	l := r.newList(items)
	l.kind, l.name = kindView, name
	return l
}

func (d *Dict) pairs() []any {
	items := make([]any, d.Len())
	for i, k := range d.keys {
		items[i] = newTuple(k, d.values[i])
	}
	return items
}

var dictMethods = map[string]func(r *run, d *Dict, args []any, list []named) any{
	"items":  func(r *run, d *Dict, _ []any, _ []named) any { return r.view("dict_items", d.pairs()) },
	"keys":   func(r *run, d *Dict, _ []any, _ []named) any { return r.view("dict_keys", slices.Clone(d.keys)) },
	"values": func(r *run, d *Dict, _ []any, _ []named) any { return r.view("dict_values", slices.Clone(d.values)) },
	"copy":   func(r *run, d *Dict, _ []any, _ []named) any { r.charge(32 * d.Len()); return d.Copy() },
	"get": func(_ *run, d *Dict, args []any, list []named) any {
		a := bind("dict.get()", args, list, 1, "key", "default")
		if v, ok := d.Get(a.values[0]); ok {
			return v
		}
		return a.or(1, nil)
	},
}

var listMethods = map[string]func(r *run, l *List, args []any, list []named) any{
	"append": func(r *run, l *List, args []any, list []named) any {
		a := bind("list.append()", args, list, 1, "object")
		r.fits(16 * len(l.Items))
		r.charge(16)
		l.Items = append(l.Items, a.values[0])
		return nil
	},
	"extend": func(r *run, l *List, args []any, list []named) any {
		a := bind("list.extend()", args, list, 1, "iterable")
		more := r.iterate(a.values[0])
		r.fits(16 * (len(l.Items) + len(more)))
		l.Items = append(l.Items, more...)
		return nil
	},
	"insert": func(r *run, l *List, args []any, list []named) any {
		a := bind("list.insert()", args, list, 2, "index", "object")
		at, _, _ := r.bounds(len(l.Items), a.values[0], nil, nil)
		r.charge(16 * len(l.Items))
		l.Items = slices.Insert(l.Items, at, a.values[1])
		return nil
	},
	"pop": func(r *run, l *List, args []any, list []named) any {
		i := r.wantInt(bind("list.pop()", args, list, 0, "index").or(0, int64(-1)), "pop: the index")
		v, ok := r.index(l, i)
		if !ok {
			throw("pop index out of range")
		}
		if i < 0 {
			i += int64(len(l.Items))
		}
		r.charge(len(l.Items))
		l.Items = slices.Delete(slices.Clone(l.Items), int(i), int(i)+1)
		return v
	},
	"copy": func(r *run, l *List, _ []any, _ []named) any { return r.newList(slices.Clone(l.Items)) },
	"count": func(r *run, l *List, args []any, list []named) any {
		a, n := bind("list.count()", args, list, 1, "value"), int64(0)
		for _, v := range l.Items {
			if r.equal(v, a.values[0]) {
				n++
			}
		}
		return n
	},
	"index": func(r *run, l *List, args []any, list []named) any {
		a := bind("list.index()", args, list, 1, "value")
		for i, v := range l.Items {
			if r.equal(v, a.values[0]) {
				return int64(i)
			}
		}
		throw("%s is not in list", r.repr(a.values[0]))
		return nil
	},
}
