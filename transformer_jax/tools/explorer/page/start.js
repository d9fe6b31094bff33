// Begins when all scripts are there.

function start() {
  Object.assign(initial, state);
  readAddress();
  settle();
  listen();
  render();
}
