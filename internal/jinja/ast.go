package jinja

// An expr is a part of a template that has a value.
type expr interface{}

type (
	constExpr struct{ value any }
	nameExpr  struct{ name string }
	tupleExpr struct{ items []expr }
	listExpr  struct{ items []expr }
	dictExpr  struct{ keys, values []expr }
	condExpr  struct{ test, yes, no expr } // no may be nil
	orExpr    struct{ left, right expr }
	andExpr   struct{ left, right expr }
	notExpr   struct{ of expr }
	compareOp struct {
		op    string
		right expr
	}
	compareExpr struct {
		left expr
		ops  []compareOp
	}
	binaryExpr struct {
		op          string
		left, right expr
	}
	concatExpr struct{ parts []expr }
	unaryExpr  struct {
		op string
		of expr
	}
	attrExpr struct {
		of   expr
		name string
	}
	itemExpr  struct{ of, key expr }
	sliceExpr struct{ start, stop, step expr } // each may be nil
	keyword   struct {
		name  string
		value expr
	}
	arguments struct {
		list  []expr
		named []keyword
		rest  expr // *rest
		more  expr // **more
	}
	callExpr struct {
		of   expr
		args arguments
	}
	filterExpr struct {
		of   expr // nil: the body of a block
		name string
		args arguments
	}
	testExpr struct {
		of   expr
		name string
		args arguments
	}
	nsTarget struct{ name, attr string } // the target of {% set ns.attr = … %}
)

// A stmt is a part of a template that writes or assigns.
type stmt interface{}

type (
	dataStmt   struct{ text string }
	outputStmt struct {
		of   expr
		line int
	}
	forStmt struct {
		target               expr
		of                   expr
		test                 expr // may be nil
		body                 []stmt
		otherwise            []stmt
		missing, missingElse []string // names that begin undefined: see symbols.go
		recursive            bool
	}
	branchStmt struct {
		test expr // nil: else
		body []stmt
	}
	ifStmt   struct{ branches []branchStmt }
	setStmt  struct{ target, value expr }
	setBlock struct {
		target  expr
		filter  expr // may be nil
		body    []stmt
		missing []string
	}
	withStmt struct {
		targets, values []expr
		body            []stmt
		missing         []string
	}
	signature struct {
		names    []string
		defaults []expr // of the last names
		body     []stmt
		missing  []string
		varargs  bool // the body uses varargs, kwargs or caller
		kwargs   bool
		caller   bool
	}
	macroStmt struct {
		name string
		sig  *signature
	}
	callStmt struct {
		call expr
		sig  *signature
	}
	filterStmt struct {
		filter  expr
		body    []stmt
		missing []string
	}
	scopeStmt struct { // generation
		body    []stmt
		missing []string
	}
	breakStmt    struct{}
	continueStmt struct{}
)
