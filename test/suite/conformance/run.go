package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/kubelab"
)

const (
	// testTimeout bounds a test without its cleanup.
	testTimeout = 40 * time.Minute
	// endTimeout bounds the cleanup of a test.
	endTimeout = 3 * time.Minute
)

// runner runs tests of a suite in a cluster, each in its own process. So each test has its own log
// and its own duration, and the failure of a test does not end another.
type runner struct {
	suite *suite
	lab   *kubelab.Lab
	logs  string
	said  func(result) // is called with each result, by one goroutine at a time

	mu sync.Mutex // guards calls of said
}

// result is the result of a test.
type result struct {
	name string
	took time.Duration
	log  string
	err  error // nil if the test has passed
}

// String returns a row of a table.
func (r result) String() string {
	row := fmt.Sprintf("%5.0f s  %s", r.took.Seconds(), r.name)
	if r.err == nil {
		return "pass " + row
	}
	return fmt.Sprintf("FAIL %s\n              %s; log: %s", row, r.err, r.log)
}

// runAll runs tests, and returns when all have ended. It first runs the tests that may run
// concurrently, some at a time, and then the others one by one.
func (r *runner) runAll(ctx context.Context, tests []string, parallel int) []result {
	var alone, beside []string
	for _, t := range tests {
		if strings.Contains(t, "[Serial]") || strings.Contains(t, "[Disruptive]") {
			alone = append(alone, t)
		} else {
			beside = append(beside, t)
		}
	}
	return slices.Concat(r.runSome(ctx, beside, parallel), r.runSome(ctx, alone, 1))
}

// runSome runs tests, some at the same time, and returns their results. When ctx is done, it does
// not start the remaining ones.
func (r *runner) runSome(ctx context.Context, tests []string, parallel int) []result {
	results := make([]result, len(tests))
	next := make(chan int)
	var ended sync.WaitGroup
	for range parallel {
		ended.Go(func() {
			for i := range next {
				results[i] = r.run(ctx, tests[i])
				r.say(results[i])
			}
		})
	}
	for i, t := range tests {
		select {
		case next <- i:
		case <-ctx.Done():
			results[i] = result{name: t, err: ctx.Err()}
		}
	}
	close(next)
	ended.Wait()
	return results
}

func (r *runner) say(one result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said(one)
}

// run runs a test.
func (r *runner) run(ctx context.Context, name string) result {
	one := result{name: name, log: filepath.Join(r.logs, logName(name))}
	start := time.Now()
	one.err = r.runLogged(ctx, name, one.log)
	one.took = time.Since(start)
	return one
}

func (r *runner) runLogged(ctx context.Context, name, file string) error {
	ctx, cancel := context.WithTimeout(ctx, testTimeout+endTimeout)
	defer cancel()
	log, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := r.command(ctx, name)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return errors.Join(err, ctx.Err())
	}
	return verify(file)
}

// command returns the process of the suite for a test. It ends with this process, and its own child
// processes end with it.
func (r *runner) command(ctx context.Context, name string) *exec.Cmd {
	cmd := r.lab.Outside().Command(ctx, r.suite.binary,
		"--kubeconfig="+r.lab.Kubeconfig(), "--kubectl-path="+r.lab.Kubectl(), "--provider=skeleton",
		"--ginkgo.focus="+focus(name), "--ginkgo.timeout="+testTimeout.String(), "--ginkgo.v", "--ginkgo.no-color",
		"--e2e-output-dir="+r.logs, "--disable-log-dump")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// focus returns the regular expression for one test. The suite matches it against its own title,
// followed by the name of the test.
func focus(name string) string { return " " + regexp.QuoteMeta(name) + "$" }

// passed matches the last lines of the suite if one test was chosen and has passed.
const passed = " 1 Passed | 0 Failed"

// verify fails unless the output says that the test has passed. The suite also succeeds if a test
// skips itself, or if no test was chosen.
func verify(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	if !strings.Contains(string(text), passed) {
		return errors.New("it has skipped itself, or the suite has no such test")
	}
	return nil
}

// unfit matches the characters that the name of a log cannot have.
var unfit = regexp.MustCompile(`[^A-Za-z0-9]+`)

func logName(test string) string {
	return strings.Trim(unfit.ReplaceAllString(strings.TrimPrefix(test, group), "-"), "-") + ".log"
}
