// A picture from the camera or a file, small enough for a message.
const MOST_PIXELS = 768; // of its longer side

export async function fromFile(file) {
  return shrunk(await createImageBitmap(file));
}

export async function fromCamera() {
  const stream = await navigator.mediaDevices.getUserMedia({ video: true });
  try {
    const video = document.createElement("video");
    video.muted = true;
    video.srcObject = stream;
    await video.play();
    return shrunk(video, video.videoWidth, video.videoHeight);
  } finally {
    for (const track of stream.getTracks()) track.stop();
  }
}

function shrunk(source, width = source.width, height = source.height) {
  const scale = Math.min(1, MOST_PIXELS / Math.max(width, height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(width * scale);
  canvas.height = Math.ceil(height * scale);
  const context = canvas.getContext("2d");
  context.fillStyle = "white"; // behind what is transparent, as a page is
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(source, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", 0.85);
}
