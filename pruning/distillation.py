"""Knowledge distillation (Hinton et al. 2015, "Distilling the knowledge in a neural network")."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def distillation_loss(
    student: jax.Array,
    teacher: jax.Array,
    labels: jax.Array | None = None,
    temperature: float = 4.0,
    weight: float = 0.9,
) -> jax.Array:
    """`weight` times the divergence of the student's distribution from the teacher's, both softened, plus 1 - `weight`
    times the cross entropy with the labels; means over rows, f32 [].

    student, teacher: logits [..., n]; no gradient flows to the teacher. labels: int [...]; None: only the first part
    counts, whatever the weight. temperature: what logits are divided by in the first part, which is multiplied by its
    square, so that its gradients stay as large (section 2). The divergence is zero where the distributions are equal;
    from Hinton's cross entropy it differs by the teacher's entropy, which has no gradient. Raises ValueError where
    shapes differ, the temperature is not positive, or the weight is not from 0 to 1.
    """
    if student.shape != teacher.shape:
        raise ValueError(
            f"logits {list(student.shape)} of the student and {list(teacher.shape)} of the teacher differ in shape"
        )
    if labels is not None and labels.shape != student.shape[:-1]:
        raise ValueError(
            f"logits {list(student.shape)} need labels {list(student.shape[:-1])}, not {list(labels.shape)}"
        )
    if not temperature > 0 or not 0 <= weight <= 1:
        raise ValueError(
            f"say a temperature above 0, not {temperature:g}, and a weight from 0 to 1, not {weight:g}"
        )
    student, teacher = student.astype(jnp.float32), jax.lax.stop_gradient(teacher.astype(jnp.float32))
    ours = jax.nn.log_softmax(student / temperature)
    theirs = jax.nn.log_softmax(teacher / temperature)
    soft = temperature**2 * jnp.mean(jnp.sum(jnp.exp(theirs) * (theirs - ours), axis=-1))
    if labels is None:
        return soft
    log_probs = jax.nn.log_softmax(student)
    hard = -jnp.mean(jnp.take_along_axis(log_probs, labels[..., None], axis=-1))
    return weight * soft + (1 - weight) * hard
