package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// waits has the functions that wait for an event that must come, and the number of the argument that says how long.
var waits = map[string]int{"Eventually": 2, "EventuallyWithT": 2, "Await": 2, "AwaitSync": 0, "AwaitFilled": 0}

// TestPatience: no test fails because what it waits for takes a minute.
func TestPatience(t *testing.T) {
	files := token.NewFileSet()
	require.NoError(t, filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			callee, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if i, ok := waits[callee.Sel.Name]; ok && i < len(call.Args) {
				if d, ok := literal(call.Args[i]); ok && d < patience.Patience {
					t.Errorf("%s: %s waits only for %s: use patience.Patience", files.Position(call.Pos()), callee.Sel.Name, d)
				}
			}
			return true
		})
		return nil
	}))
}

var units = map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}

// literal returns the value of an expression such as 20*time.Second.
func literal(e ast.Expr) (time.Duration, bool) {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		unit, ok := units[e.Sel.Name]
		return unit, ok
	case *ast.BinaryExpr:
		number, _ := e.X.(*ast.BasicLit)
		unit, ok := literal(e.Y)
		if number == nil || !ok || e.Op != token.MUL {
			return 0, false
		}
		n, err := strconv.Atoi(number.Value)
		return time.Duration(n) * unit, err == nil
	}
	return 0, false
}
