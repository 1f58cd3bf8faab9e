package nand

// queue is a die's waiting operations of one kind, oldest first.
type queue struct {
	all  []int
	head int
	gone map[int]bool       // taken with an older one, still in all
	rows map[planeRow][]int // where there are several planes
	n    int                // planes
}

type planeRow struct{ plane, row int }

func (q *queue) add(op int, p Place, planes int) {
	q.all = append(q.all, op)
	if q.n = planes; planes > 1 {
		if q.rows == nil {
			q.rows, q.gone = map[planeRow][]int{}, map[int]bool{}
		}
		k := planeRow{p.Plane, p.Row}
		q.rows[k] = append(q.rows[k], op)
	}
}

func (q *queue) any() bool {
	for q.head < len(q.all) && q.gone[q.all[q.head]] {
		delete(q.gone, q.all[q.head])
		q.head++
	}
	return q.head < len(q.all)
}

// width is how many operations take would return.
func (q *queue) width(ops []Op) int {
	n, p := 1, ops[q.all[q.head]].Place
	for plane := range q.n {
		if plane != p.Plane && len(q.rows[planeRow{plane, p.Row}]) > 0 {
			n++
		}
	}
	return n
}

// take removes the oldest operation, and with it the oldest of its row in each other plane; any was true.
func (q *queue) take(ops []Op) []int {
	first := q.all[q.head]
	q.head++
	taken := []int{first}
	if q.n < 2 {
		return taken
	}
	p := ops[first].Place
	q.drop(planeRow{p.Plane, p.Row})
	for plane := range q.n {
		k := planeRow{plane, p.Row}
		if plane != p.Plane && len(q.rows[k]) > 0 {
			op := q.rows[k][0]
			taken = append(taken, op)
			q.gone[op] = true
			q.drop(k)
		}
	}
	return taken
}

func (q *queue) drop(k planeRow) {
	if q.rows[k] = q.rows[k][1:]; len(q.rows[k]) == 0 {
		delete(q.rows, k)
	}
}
